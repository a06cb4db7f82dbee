//! Finds the loaded object that an address belongs to, and its unwind tables.
//!
//! `_dl_find_object` (glibc 2.35) takes no lock and does not allocate. It works in signal handlers,
//! and while another thread loads or unloads objects. `dl_iterate_phdr` is not a substitute: it
//! takes the lock that the loader holds while it calls malloc.

use core::arch::global_asm;
use core::ffi::{c_char, c_int, c_void};
use core::{hint, mem, ptr, slice};

global_asm!(".weak _dl_find_object");

unsafe extern "C" {
    fn _dl_find_object(address: *mut c_void, result: *mut DlFindObject) -> c_int;
}

/// glibc's `struct dl_find_object`.
#[repr(C)]
struct DlFindObject {
    flags: u64,
    map_start: *const u8,
    map_end: *const u8,
    link_map: *const LinkMap,
    eh_frame_header: *const u8,
    reserved: [u64; 7],
}

/// The fields of glibc's `struct link_map` that are used here.
#[repr(C)]
struct LinkMap {
    /// The distance between the addresses that the object was linked for and its actual ones.
    offset: usize,
    name: *const c_char,
}

/// The segment of an object that holds its unwind tables.
pub(super) struct Tables {
    /// The address of `.eh_frame_hdr`.
    pub(super) header: usize,
    /// The end of the segment.
    end: usize,
    /// The start of the segment.
    start: usize,
}

impl Tables {
    /// Returns the bytes from `address` to the end of the segment, if it is in there.
    pub(super) fn from(&self, address: usize) -> Option<&'static [u8]> {
        if address < self.start || address >= self.end {
            return None;
        }
        // SAFETY: the bytes belong to a loaded, read-only segment. Its object stays loaded while
        // one of its functions is on a stack, which is why the tables are needed.
        Some(unsafe { slice::from_raw_parts(address as *const u8, self.end - address) })
    }
}

/// Returns the unwind tables of the object that `address` belongs to, if they can be found.
pub(super) fn tables(address: usize) -> Option<Tables> {
    let find: unsafe extern "C" fn(*mut c_void, *mut DlFindObject) -> c_int = _dl_find_object;
    // The symbol is weak, so it is null if the C library does not have it. The compiler assumes
    // that functions are never null, hence the black box.
    if hint::black_box(find as *const c_void).is_null() {
        return None;
    }
    // SAFETY: the structure is plain data, for which zeros are valid.
    let mut found: DlFindObject = unsafe { mem::zeroed() };
    // SAFETY: the function exists, accepts any address, and writes a structure of this layout.
    if unsafe { find(address as *mut c_void, &raw mut found) } != 0
        || found.eh_frame_header.is_null()
    {
        return None;
    }
    segment_of(&found)
}

/// The program headers of an object in memory.
struct ProgramHeaders {
    first: *const libc::Elf64_Phdr,
    count: usize,
    /// The number to be added to the addresses in them.
    offset: usize,
}

/// Returns the segment with `.eh_frame_hdr`, by the object's program headers.
fn segment_of(found: &DlFindObject) -> Option<Tables> {
    let header = found.eh_frame_header as usize;
    let headers = program_headers(found)?;
    (0..headers.count).find_map(|index| {
        // SAFETY: the index is below the number of headers, which the loader has read from here;
        // objects do not change them. They need not be aligned.
        let program = unsafe { ptr::read_unaligned(headers.first.add(index)) };
        let start = headers.offset.wrapping_add(program.p_vaddr as usize);
        let end = start.wrapping_add(program.p_memsz as usize);
        let is_read_only = program.p_type == libc::PT_LOAD && program.p_flags & libc::PF_W == 0;
        (is_read_only && (start..end).contains(&header)).then_some(Tables { header, start, end })
    })
}

fn program_headers(found: &DlFindObject) -> Option<ProgramHeaders> {
    // SAFETY: the object is loaded, so its link map is valid.
    let map = unsafe { &*found.link_map };
    // The name of the program itself is empty.
    // SAFETY: names in link maps are strings that end with a zero byte.
    if unsafe { *map.name } == 0 {
        // The headers of the program come from the kernel: a program need not be contiguous, so its
        // first page may be outside of the range found.
        // SAFETY: getauxval has no preconditions.
        let (first, count) =
            unsafe { (libc::getauxval(libc::AT_PHDR), libc::getauxval(libc::AT_PHNUM)) };
        let (first, count) = (first as *const libc::Elf64_Phdr, count as usize);
        return (!first.is_null()).then_some(ProgramHeaders { first, count, offset: map.offset });
    }
    // SAFETY: this is the first page of a loaded object, which is mapped and holds an ELF header.
    let elf = unsafe { ptr::read_unaligned(found.map_start.cast::<libc::Elf64_Ehdr>()) };
    let (table, count) = (usize::try_from(elf.e_phoff).ok()?, usize::from(elf.e_phnum));
    let table_end = table.checked_add(count * size_of::<libc::Elf64_Phdr>())?;
    let bytes = found.map_end as usize - found.map_start as usize;
    if !elf.e_ident.starts_with(b"\x7fELF") || table_end > bytes {
        return None;
    }
    let first = found.map_start.wrapping_add(table).cast();
    Some(ProgramHeaders { first, count, offset: map.offset })
}

//! Which loaded object an address belongs to, and where that keeps its unwinding tables.
//!
//! `_dl_find_object` (glibc 2.35) answers without a lock and without allocating, in signal handlers and while another thread
//! loads or unloads objects. `dl_iterate_phdr` is not a substitute: it waits for the lock under which the loader calls malloc.

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

/// The public part of glibc's `struct link_map`, as far as it is needed.
#[repr(C)]
struct LinkMap {
    /// How far from where it was linked for the object is.
    offset: usize,
    name: *const c_char,
}

/// The part of an object that its unwinding tables are in.
pub(super) struct Tables {
    /// Where `.eh_frame_hdr` begins.
    pub(super) header: usize,
    /// Where the segment with it ends.
    end: usize,
    start: usize,
}

impl Tables {
    /// What there is from `address` on.
    pub(super) fn from(&self, address: usize) -> Option<&'static [u8]> {
        if address < self.start || address >= self.end {
            return None;
        }
        // SAFETY: it is part of a loaded segment that nobody writes to. The object stays loaded while one of its functions is
        // being executed, which is why anybody asks.
        Some(unsafe { slice::from_raw_parts(address as *const u8, self.end - address) })
    }
}

/// The tables of the object that `address` is in.
pub(super) fn tables(address: usize) -> Option<Tables> {
    let find: unsafe extern "C" fn(*mut c_void, *mut DlFindObject) -> c_int = _dl_find_object;
    // The symbol is weak: null where the C library does not have it, which the compiler takes to be impossible.
    if hint::black_box(find as *const c_void).is_null() {
        return None;
    }
    // SAFETY: plain data, for which zeros are good.
    let mut found: DlFindObject = unsafe { mem::zeroed() };
    // SAFETY: the function is there, and fills in a structure of this layout.
    if unsafe { find(address as *mut c_void, &raw mut found) } != 0
        || found.eh_frame_header.is_null()
    {
        return None;
    }
    segment_of(&found)
}

/// What the loader has read of an object.
struct ProgramHeaders {
    first: *const libc::Elf64_Phdr,
    count: usize,
    /// What is added to the addresses in them.
    offset: usize,
}

/// Finds the segment with the header by the object's program headers.
fn segment_of(found: &DlFindObject) -> Option<Tables> {
    let header = found.eh_frame_header as usize;
    let headers = program_headers(found)?;
    (0..headers.count).find_map(|index| {
        // SAFETY: the loader has read them there, and objects do not change theirs; they need not be aligned.
        let program = unsafe { ptr::read_unaligned(headers.first.add(index)) };
        let start = headers.offset.wrapping_add(program.p_vaddr as usize);
        let end = start.wrapping_add(program.p_memsz as usize);
        let is_read_only = program.p_type == libc::PT_LOAD && program.p_flags & libc::PF_W == 0;
        (is_read_only && (start..end).contains(&header)).then_some(Tables { header, start, end })
    })
}

fn program_headers(found: &DlFindObject) -> Option<ProgramHeaders> {
    // SAFETY: the object is loaded.
    let map = unsafe { &*found.link_map };
    // SAFETY: names end with a zero byte. That of the program itself is empty.
    if unsafe { *map.name } == 0 {
        // SAFETY: reads what the kernel has told the loader. It may be that only a segment was found, as the program need not
        // be contiguous.
        let (first, count) =
            unsafe { (libc::getauxval(libc::AT_PHDR), libc::getauxval(libc::AT_PHNUM)) };
        let (first, count) = (first as *const libc::Elf64_Phdr, count as usize);
        return (!first.is_null()).then_some(ProgramHeaders { first, count, offset: map.offset });
    }
    // SAFETY: the first page of a loaded object, which is mapped and larger than this.
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

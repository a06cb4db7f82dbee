//! Keeping the code of this library mapped forever.
//!
//! `rseq_cs` may point at a section's descriptor long after the section has ended. If that memory
//! were unmapped, the kernel would kill the process the next time it reads the descriptor.
//!
//! The main program is never unmapped. A plugin that links this library statically is kept loaded
//! from its first use on. An object that was linked with `-z nodelete` needs nothing: an
//! allocator's first use may come in the middle of the loader's own work, and `dlopen` allocates.

use core::arch::global_asm;
use core::ffi::{c_char, c_int, c_void};
use core::hint::black_box;

// The dynamic section of this object; a static program that is not relocated has none.
global_asm!(".weak _DYNAMIC", ".hidden _DYNAMIC");

unsafe extern "C" {
    static _DYNAMIC: Entry;
}

/// An entry of a dynamic section (`Elf64_Dyn`).
#[repr(C)]
struct Entry {
    tag: i64,
    value: u64,
}

/// The tag of the last entry.
const DT_NULL: i64 = 0;
const DT_FLAGS_1: i64 = 0x6fff_fffb;
const DF_1_NODELETE: u64 = 8;

/// Keeps this function's object loaded; returns whether it stays mapped. May run repeatedly.
pub(crate) fn init() -> bool {
    let here = init as *const c_void;
    if in_main_program(here as usize) || is_never_unmapped() {
        return true;
    }
    // SAFETY: `info` is a plain output. Its name belongs to the loader and lives as long as the
    // object, which contains this code.
    unsafe {
        let mut info: libc::Dl_info = core::mem::zeroed();
        if libc::dladdr(here, &mut info) == 0 || info.dli_fname.is_null() {
            return false;
        }
        // glibc before 2.34 has `dlopen` and `dlclose` in a library of their own. In a process
        // without it, nothing can unmap this object.
        let Some(dlopen) = dlopen() else { return true };
        // The handle is leaked, because its reference keeps the object loaded.
        let flags = libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
        !dlopen(info.dli_fname, flags).is_null()
    }
}

type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;

/// Returns the function `dlopen`, if the process has it.
///
/// Looks it up, because a static program never calls it, and its linker would warn of any reference
/// to it.
fn dlopen() -> Option<Dlopen> {
    // SAFETY: the result is null, or the address of the C library's function or of one that
    // replaces it, which has this type. `None` has the representation of null.
    unsafe {
        let function = libc::dlsym(libc::RTLD_DEFAULT, c"dlopen".as_ptr());
        core::mem::transmute::<*mut c_void, Option<Dlopen>>(function)
    }
}

/// Returns whether `address` lies in a segment of the main program.
fn in_main_program(address: usize) -> bool {
    // SAFETY: getauxval reads the auxiliary vector. The program headers that it names are part of
    // the main program, which stays mapped.
    unsafe {
        let headers = libc::getauxval(libc::AT_PHDR) as *const libc::Elf64_Phdr;
        let count = libc::getauxval(libc::AT_PHNUM) as usize;
        if headers.is_null() {
            return false;
        }
        let headers = core::slice::from_raw_parts(headers, count);
        let find = |kind| headers.iter().find(|header| header.p_type == kind);
        let unrelocated = match (find(libc::PT_PHDR), find(libc::PT_LOAD)) {
            (Some(own), _) => own.p_vaddr as usize,
            // A static program lacks that header. Linkers place its program headers behind the ELF
            // header, with which the first segment begins.
            (None, Some(first)) => first.p_vaddr as usize + size_of::<libc::Elf64_Ehdr>(),
            (None, None) => return false,
        };
        let bias = (headers.as_ptr() as usize).wrapping_sub(unrelocated);
        headers.iter().any(|header| holds(header, bias, address))
    }
}

/// Returns whether the object that contains this function was linked with `-z nodelete`.
fn is_never_unmapped() -> bool {
    // The compiler may assume that the address of a static is not null, but a weak symbol's can be.
    let mut entry = black_box(&raw const _DYNAMIC);
    if entry.is_null() {
        return false;
    }
    // SAFETY: a dynamic section is part of the object that contains this code, and an entry with
    // the null tag ends it.
    unsafe {
        while (*entry).tag != DT_NULL {
            if (*entry).tag == DT_FLAGS_1 {
                return (*entry).value & DF_1_NODELETE != 0;
            }
            entry = entry.add(1);
        }
    }
    false
}

fn holds(header: &libc::Elf64_Phdr, bias: usize, address: usize) -> bool {
    let start = bias.wrapping_add(header.p_vaddr as usize);
    header.p_type == libc::PT_LOAD && address.wrapping_sub(start) < header.p_memsz as usize
}

//! Keeping the code of this library mapped for ever.
//!
//! `rseq_cs` may point at a section's descriptor long after the section; if that memory were
//! unmapped, the kernel's next look at it would kill the process. The main program is never
//! unmapped; a plugin that links this library statically is pinned at its first use.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether somebody has said that the object which holds this is never unmapped.
static STAYS: AtomicBool = AtomicBool::new(false);

/// Says that the object which holds this library is never unmapped, so that nothing has to be done for it. For an allocator, which
/// the loader calls: to ask that for more would lead back here.
pub fn stays() {
    // Relaxed: it is said before the first use, by the same thread.
    STAYS.store(true, Relaxed);
}

/// Pins the object that holds this function, unless it is the main program. May run repeatedly.
/// Whether the code stays mapped.
pub(crate) fn init() -> bool {
    let here = init as *const c_void;
    if STAYS.load(Relaxed) || in_main_program(here as usize) {
        return true;
    }
    // SAFETY: `info` is a plain output; the name it returns belongs to the loader and lives as long
    // as the object, which is running this very code.
    unsafe {
        let mut info: libc::Dl_info = core::mem::zeroed();
        if libc::dladdr(here, &mut info) == 0 || info.dli_fname.is_null() {
            return false;
        }
        // The handle is dropped on purpose: the reference it holds is the pin.
        let flags = libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
        !libc::dlopen(info.dli_fname, flags).is_null()
    }
}

/// Whether `address` lies in a segment of the main program, as the kernel described it to us.
fn in_main_program(address: usize) -> bool {
    // SAFETY: getauxval reads the auxiliary vector; the program headers it names are part of the
    // main program's image, which stays mapped.
    unsafe {
        let headers = libc::getauxval(libc::AT_PHDR) as *const libc::Elf64_Phdr;
        let count = libc::getauxval(libc::AT_PHNUM) as usize;
        if headers.is_null() {
            return false;
        }
        let headers = core::slice::from_raw_parts(headers, count);
        let Some(own) = headers.iter().find(|header| header.p_type == libc::PT_PHDR) else {
            // A static program without that header is not relocated.
            return headers.iter().any(|header| holds(header, 0, address));
        };
        let bias = (headers.as_ptr() as usize).wrapping_sub(own.p_vaddr as usize);
        headers.iter().any(|header| holds(header, bias, address))
    }
}

fn holds(header: &libc::Elf64_Phdr, bias: usize, address: usize) -> bool {
    let start = bias.wrapping_add(header.p_vaddr as usize);
    header.p_type == libc::PT_LOAD && address.wrapping_sub(start) < header.p_memsz as usize
}

//! What a program does wrong with objects: said on standard error, and then the process is ended, because nothing that it
//! does from then on can be trusted.

use core::hint::black_box;
use core::ptr::NonNull;

use super::slab::Slab;
use crate::sys::atomic::Ordering::Relaxed;
use crate::sys::stderr::write_line;

/// What was noticed.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub enum HeapError {
    /// An object is freed that is free.
    DoubleFree,
    /// A free object has been written to.
    WriteAfterFree,
    /// An address is freed that is in no slab of the cache.
    InvalidFree,
    /// An address is freed at which no object begins.
    InteriorFree,
}

impl HeapError {
    /// Says what is wrong with the object at an address, of `size` bytes if that is not 0, and ends the process. Allocates nothing and takes no lock.
    #[cold]
    #[inline(never)]
    pub fn report(self, address: usize, size: usize) -> ! {
        let what = match self {
            HeapError::DoubleFree => "freed twice",
            HeapError::WriteAfterFree => "written to after it was freed",
            HeapError::InvalidFree if size == 0 => "freed, but nothing was ever handed out there",
            HeapError::InvalidFree => "freed, but nothing of that size was ever handed out there",
            HeapError::InteriorFree => {
                "freed, but it is inside of an object and not where one begins"
            }
        };
        if cfg!(thiscpu_model) {
            panic!("{address:#x} ({size} bytes): {what}");
        }
        match size {
            0 => write_line(libc::STDERR_FILENO, format_args!("thiscpu: {address:#x}: {what}")),
            _ => write_line(
                libc::STDERR_FILENO,
                format_args!("thiscpu: {address:#x} ({size} bytes): {what}"),
            ),
        }
        // SAFETY: it ends the process, which must be ended.
        unsafe { libc::abort() }
    }
}

// What is noticed on fast paths, in functions that cannot unwind and look as if they returned, so that those end with a jump to them.

/// Says that an object is freed which is free, and ends the process.
#[cold]
#[inline(never)]
pub extern "C" fn double_free(object: usize) {
    // The compiler is not to know that this never returns.
    if black_box(true) {
        HeapError::DoubleFree.report(object, size_at(object))
    }
}

/// Says that a free object has been written to, and ends the process.
#[cold]
#[inline(never)]
pub extern "C" fn write_after_free(object: usize) -> Option<NonNull<u8>> {
    if black_box(true) {
        HeapError::WriteAfterFree.report(object, size_at(object))
    }
    None
}

/// The bytes of the objects in whose slab an address is, if it is in one.
fn size_at(object: usize) -> usize {
    Slab::containing(object).map_or(0, |slab| slab.size.load(Relaxed))
}

//! Heap errors: misuse of objects, reported on standard error before the process aborts.
//!
//! Once memory is corrupt, nothing that the program does can be trusted.

use core::hint::black_box;
use core::ptr::NonNull;
use core::sync::atomic::AtomicBool;

use super::slab::Slab;
use crate::sys::atomic::Ordering::Relaxed;
use crate::sys::stderr::write_line;

/// A detected misuse of an object.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub enum HeapError {
    /// A free of an object that is free.
    DoubleFree,
    /// A write to a free object.
    WriteAfterFree,
    /// A free of an address at which no object of the cache was ever allocated.
    InvalidFree,
    /// A free of an address inside an object.
    InteriorFree,
}

impl HeapError {
    /// Reports the error, with the address and the size of the object, and aborts.
    ///
    /// A `size` of 0 is unknown and left out. Allocates nothing and takes no lock.
    #[cold]
    #[inline(never)]
    pub fn report(self, address: usize, size: usize) -> ! {
        let what = match self {
            HeapError::DoubleFree => "double free",
            HeapError::WriteAfterFree => "write after free",
            HeapError::InvalidFree if size == 0 => {
                "invalid free: no object was ever allocated there"
            }
            HeapError::InvalidFree => {
                "invalid free: no object of that size was ever allocated there"
            }
            HeapError::InteriorFree => "invalid free: pointer into the middle of an object",
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
        // Relaxed: a program that frees such a block has a pointer from a later call.
        if matches!(self, HeapError::InvalidFree) && HAS_OTHER_NAMESPACE.load(Relaxed) {
            write_line(
                libc::STDERR_FILENO,
                format_args!(
                    "thiscpu: the program has loaded libraries into another namespace (dlmopen); \
                     their blocks must be freed there"
                ),
            );
        }
        // SAFETY: `abort` ends the process, which must not continue.
        unsafe { libc::abort() }
    }
}

/// Whether the program has a second C library, whose blocks are not of this heap.
static HAS_OTHER_NAMESPACE: AtomicBool = AtomicBool::new(false);

/// Makes reports of invalid frees say that the program has used `dlmopen`.
pub fn note_other_namespace() {
    // Relaxed: see the load in `report`.
    HAS_OTHER_NAMESPACE.store(true, Relaxed);
}

// The following are for fast paths. They cannot unwind and look as if they returned, so that a fast
// path may end with a jump to them.

/// Reports a double free and aborts.
#[cold]
#[inline(never)]
pub extern "C" fn double_free(object: usize) {
    // The compiler must not see that this never returns.
    if black_box(true) {
        HeapError::DoubleFree.report(object, size_at(object))
    }
}

/// Reports a write after free and aborts.
#[cold]
#[inline(never)]
pub extern "C" fn write_after_free(object: usize) -> Option<NonNull<u8>> {
    if black_box(true) {
        HeapError::WriteAfterFree.report(object, size_at(object))
    }
    None
}

/// Returns the size of the objects of the slab that holds an address, or 0.
fn size_at(object: usize) -> usize {
    Slab::containing(object).map_or(0, |slab| slab.size.load(Relaxed))
}

//! free in assembly, and the number of calls that missed its fast path.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use thiscpu_malloc::export;
use thiscpu_malloc::export::thiscpu::define_free_fn;

static MISSES: AtomicUsize = AtomicUsize::new(0);

define_free_fn!(
    /// # Safety
    ///
    /// The block is null, or from this allocator and not used any more.
    pub(crate) fn free_asm(*mut u8), in ".text.free",
    general: free_general, gated: free_gated
);

unsafe extern "C-unwind" fn free_general(block: *mut u8) {
    MISSES.fetch_add(1, Relaxed);
    // SAFETY: the caller guarantees that the block is null, or allocated and not used any more.
    unsafe { export::free_general(block) };
}

unsafe extern "C-unwind" fn free_gated(block: NonNull<u8>) {
    MISSES.fetch_add(1, Relaxed);
    // SAFETY: the caller guarantees that the block is not used any more, and has marked it as free.
    unsafe { export::free_gated(block) };
}

/// Returns the number of calls that missed the fast path.
pub(crate) fn misses() -> usize {
    MISSES.load(Relaxed)
}

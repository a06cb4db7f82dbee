//! free in assembly, and how many calls went a longer way.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use thiscpu_malloc::export;
use thiscpu_malloc::export::thiscpu::define_front_free;

static MISSES: AtomicUsize = AtomicUsize::new(0);

define_front_free!(
    /// # Safety
    ///
    /// The block is null, or from this allocator, and nobody uses it.
    pub(crate) fn free_asm(*mut u8), in ".text.free",
    group: export::GROUP, otherwise: free_general, farther: free_gated
);

unsafe extern "C-unwind" fn free_general(block: *mut u8) {
    MISSES.fetch_add(1, Relaxed);
    // SAFETY: the caller's promise.
    unsafe { export::free_general(block) };
}

unsafe extern "C-unwind" fn free_gated(block: NonNull<u8>) {
    MISSES.fetch_add(1, Relaxed);
    // SAFETY: the caller's promise; it is marked as free.
    unsafe { export::free_gated(block) };
}

/// How many.
pub(crate) fn misses() -> usize {
    MISSES.load(Relaxed)
}

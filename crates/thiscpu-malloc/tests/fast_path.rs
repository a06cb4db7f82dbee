//! Checks that malloc and free in assembly serve calls themselves, not by jumping to slower paths.
#![cfg(target_arch = "x86_64")]

#[path = "common/fast_free.rs"]
mod fast_free;

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use fast_free::{free_asm, misses};
use thiscpu_malloc::export::thiscpu::{Tier, tier};
use thiscpu_malloc::{define_malloc, export};

/// The number of malloc calls that missed the fast path.
static ALLOC_MISSES: AtomicUsize = AtomicUsize::new(0);

define_malloc!(
    fn malloc() -> *mut u8, in ".text.malloc", gated: gated
);

extern "C-unwind" fn gated(size: usize, is_counted: bool) -> *mut u8 {
    ALLOC_MISSES.fetch_add(1, Relaxed);
    export::alloc_gated(size, is_counted, |size, cell| cold(size, cell))
}

extern "C-unwind" fn cold(size: usize, cell: usize) -> *mut u8 {
    export::alloc_cold(size, cell).map_or(ptr::null_mut(), NonNull::as_ptr)
}

#[test]
fn fast_path_serves_most_calls() {
    const CALLS: usize = 10_000;
    if tier() == Ok(Tier::Atomic) {
        return;
    }
    // Half of the blocks of 8 bytes are freed by the general path, by their alignment.
    for size in [9, 64, 1024] {
        for _ in 0..CALLS {
            let block = malloc(size);
            assert!(!block.is_null());
            // SAFETY: the block is allocated, and not used any more.
            unsafe { free_asm(block) };
        }
    }
    // The first calls on each CPU miss, and those that the kernel interrupts.
    let misses = ALLOC_MISSES.load(Relaxed) + misses();
    assert!(misses < CALLS / 4, "{misses} calls missed the fast path");
}

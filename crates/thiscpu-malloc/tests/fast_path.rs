//! malloc and free in assembly do what they are for, and do not come to the same by the longer ways that they jump to.
#![cfg(target_arch = "x86_64")]

#[path = "common/fast_free.rs"]
mod fast_free;

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use fast_free::{free_asm, misses};
use thiscpu_malloc::export::thiscpu::{Tier, tier};
use thiscpu_malloc::{define_malloc, export};

/// How many calls of malloc went a longer way.
static FARTHER: AtomicUsize = AtomicUsize::new(0);

define_malloc!(
    fn malloc() -> *mut u8, in ".text.malloc", gated: gated
);

extern "C-unwind" fn gated(size: usize) -> *mut u8 {
    FARTHER.fetch_add(1, Relaxed);
    export::alloc_gated(size, |size, cell| cold(size, cell))
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
    for size in [1, 64, 1024] {
        for _ in 0..CALLS {
            let block = malloc(size);
            assert!(!block.is_null());
            // SAFETY: nobody uses it.
            unsafe { free_asm(block) };
        }
    }
    // The first on each CPU, and what the kernel interrupts.
    let farther = FARTHER.load(Relaxed) + misses();
    assert!(farther < CALLS / 4, "{farther} calls went a longer way");
}

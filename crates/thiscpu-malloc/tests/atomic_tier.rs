//! The fast path in the atomic tier, which has no sections.
//!
//! One test, because it is about the whole process.
#![cfg(target_arch = "x86_64")]

use std::ptr::{self, NonNull};

use thiscpu_malloc::{allocate, define_free, define_malloc, export, free};

define_malloc!(
    fn malloc() -> *mut u8, in ".text.malloc", gated: gated
);

extern "C-unwind" fn gated(size: usize) -> *mut u8 {
    export::alloc_gated(size, |size, cell| cold(size, cell))
}

extern "C-unwind" fn cold(size: usize, cell: usize) -> *mut u8 {
    export::alloc_cold(size, cell).map_or(ptr::null_mut(), NonNull::as_ptr)
}

define_free!(
    /// # Safety
    ///
    /// The block is null, or from this allocator and not used any more.
    fn free_asm(*mut u8), in ".text.free"
);

/// Returns the word that a section without an rseq area would overwrite.
///
/// It is the address of the thread's table of thread-local memory.
fn word() -> usize {
    let word;
    // SAFETY: by the ABI of x86-64, a word is there.
    unsafe {
        core::arch::asm!(
            "mov {}, fs:8",
            out(reg) word,
            options(nostack, readonly, preserves_flags)
        );
    }
    word
}

#[test]
fn atomic_tier_enters_no_section() {
    // SAFETY: this is the process's only test, so no other thread uses the environment.
    unsafe { std::env::set_var("THISCPU_TIER", "atomic") };
    let before = word();
    for _ in 0..1000 {
        let block = allocate(64).unwrap();
        assert_eq!(word(), before, "by malloc");
        // SAFETY: the block is allocated, and not used any more.
        unsafe { free(block) };
        assert_eq!(word(), before, "by free");
        let block = malloc(64);
        assert_eq!(word(), before, "by malloc in assembly");
        // SAFETY: the block is allocated, and not used any more.
        unsafe { free_asm(block) };
        assert_eq!(word(), before, "by free in assembly");
    }
}

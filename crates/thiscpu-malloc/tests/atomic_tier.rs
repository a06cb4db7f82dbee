//! The fast path in the atomic tier, which has no sections.
//!
//! One test, because it is about the whole process.
#![cfg(target_arch = "x86_64")]

#[path = "common/asm_malloc.rs"]
mod asm_malloc;

use asm_malloc::malloc;
use thiscpu_malloc::{allocate, define_free, free};

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

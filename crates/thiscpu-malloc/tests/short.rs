//! Short ways where there are no sections. One test, because it is about the whole process.
#![cfg(target_arch = "x86_64")]

use thiscpu_malloc::{allocate, free};

/// What a section that is entered without an rseq area writes over: the address of the thread's table of thread-local memory.
fn word() -> usize {
    let word;
    // SAFETY: the ABI has it there.
    unsafe {
        core::arch::asm!("mov {}, fs:8", out(reg) word, options(nostack, readonly, preserves_flags));
    }
    word
}

#[test]
fn no_section_is_entered_where_there_are_none() {
    // SAFETY: nobody else reads or changes the environment: this is the process's only test.
    unsafe { std::env::set_var("THISCPU_TIER", "atomic") };
    let before = word();
    for _ in 0..1000 {
        let block = allocate(64).unwrap();
        assert_eq!(word(), before, "by malloc");
        // SAFETY: nobody uses it.
        unsafe { free(block) };
        assert_eq!(word(), before, "by free");
    }
}

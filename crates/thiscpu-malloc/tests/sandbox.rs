//! A sandbox that closes after the first use of malloc, and kills the process for unexpected calls.
//!
//! One test, because it is about the whole process.

use std::ptr::NonNull;
use std::thread::sleep;
use std::time::Duration;

use thiscpu_malloc::{allocate, class_stats, enable_counting, free, stats, trim};
use thiscpu_test_support::{cpus, memory, seccomp};

const MEBIBYTE: usize = 1 << 20;
const COUNT: usize = 10_000;

/// Denies membarrier from now on, and kills the process if it reads or sets its CPU affinity.
fn close_sandbox() -> bool {
    let rules = [
        (libc::SYS_membarrier, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        (libc::SYS_sched_setaffinity, libc::SECCOMP_RET_KILL_PROCESS),
        (libc::SYS_sched_getaffinity, libc::SECCOMP_RET_KILL_PROCESS),
    ];
    seccomp::install(rules, libc::SECCOMP_RET_ALLOW).is_ok()
}

fn take(size: usize) -> Vec<NonNull<u8>> {
    (0..COUNT).map(|_| allocate(size).unwrap()).collect()
}

fn free_all(blocks: Vec<NonNull<u8>>) {
    // SAFETY: the blocks are allocated, and not used any more.
    blocks.into_iter().for_each(|block| unsafe { free(block) });
}

#[test]
fn malloc_makes_no_unexpected_syscalls_when_membarrier_is_denied() {
    // The thread uses one lane, so its counts are behind by what one lane may hold back.
    assert!(cpus::confine(cpus::tid(), [cpus::current() as usize]));
    enable_counting();
    free_all(take(512));
    if !close_sandbox() {
        return eprintln!("skipped: needs seccomp filters");
    }
    // Memory grows while classes have been idle for long enough to be emptied.
    for size in [1024, 2048, 4096] {
        free_all(take(size));
        sleep(Duration::from_millis(150));
    }
    // Memory is exhausted.
    let before = memory::set_limit(libc::RLIMIT_AS, 0).unwrap();
    let kept: Vec<_> = std::iter::from_fn(|| allocate(4 * MEBIBYTE)).take(COUNT).collect();
    assert!(kept.len() < COUNT);
    memory::set_limit(libc::RLIMIT_AS, before).unwrap();
    free_all(kept);
    trim(0);
    // Counts are right except for what a lane may hold back.
    for class in class_stats().filter(|class| [512, 1024, 2048, 4096].contains(&class.size)) {
        assert!(class.allocations.abs_diff(COUNT as u64) <= 1024, "{class:?}");
    }
    assert!(stats().peak_system_bytes > 20 * MEBIBYTE);
}

//! A sandbox that closes before the first use of malloc, and allows only the documented calls.

use std::ptr::NonNull;

use thiscpu_malloc::{allocate, free, resize, trim};
use thiscpu_test_support::{child, seccomp};

/// The system calls without which there are no blocks.
const MEMORY: [(&str, libc::c_long); 5] = [
    ("mmap", libc::SYS_mmap),
    ("munmap", libc::SYS_munmap),
    ("mprotect", libc::SYS_mprotect),
    ("madvise", libc::SYS_madvise),
    ("munlock", libc::SYS_munlock),
];

/// The system calls that may be denied.
const OPTIONAL: [(&str, libc::c_long); 14] = [
    ("mremap", libc::SYS_mremap),
    ("mincore", libc::SYS_mincore),
    ("prlimit64", libc::SYS_prlimit64),
    ("membarrier", libc::SYS_membarrier),
    ("rseq", libc::SYS_rseq),
    ("openat", libc::SYS_openat),
    ("read", libc::SYS_read),
    ("close", libc::SYS_close),
    ("sched_getaffinity", libc::SYS_sched_getaffinity),
    ("getrandom", libc::SYS_getrandom),
    ("getcpu", libc::SYS_getcpu),
    ("clock_gettime", libc::SYS_clock_gettime),
    ("msync", libc::SYS_msync),
    ("futex", libc::SYS_futex),
];

/// Kills the process for calls that are not listed, and applies `action` to optional ones.
fn close_sandbox(action: u32) -> bool {
    let memory = MEMORY.iter().map(|call| (call.1, libc::SECCOMP_RET_ALLOW));
    let optional = OPTIONAL.iter().map(|call| (call.1, action));
    // The child exits with this one.
    let exit = [(libc::SYS_exit_group, libc::SECCOMP_RET_ALLOW)];
    seccomp::install(memory.chain(optional).chain(exit), libc::SECCOMP_RET_KILL_PROCESS).is_ok()
}

/// Allocates and frees blocks of many sizes, some of them large. Returns whether that worked.
fn use_all() -> bool {
    let mut blocks = [const { None::<NonNull<u8>> }; 64];
    for (number, block) in blocks.iter_mut().enumerate() {
        *block = allocate(16 << (number % 18));
    }
    let are_all = blocks.iter().all(Option::is_some);
    for block in blocks.into_iter().flatten() {
        // SAFETY: the block is allocated, and not used any more.
        unsafe { free(block) };
    }
    let large = [2 << 20, 2 << 20].map(allocate);
    // SAFETY: the block is allocated, and only its replacement is used.
    let grown = large[0].and_then(|block| unsafe { resize(block, 5 << 20) });
    trim(0);
    grown.is_some() && are_all && allocate(100).is_some()
}

/// Returns the wait status of a child that first uses malloc in such a sandbox.
///
/// It exits with 0 for success, and with 77 if sandboxes are unavailable.
fn first_use_in_sandbox(action: u32) -> i32 {
    child::status_of(|| if !close_sandbox(action) { 77 } else { i32::from(!use_all()) })
}

#[test]
fn first_use_makes_only_documented_syscalls() {
    for action in [libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32] {
        let status = first_use_in_sandbox(action);
        if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 77 {
            return eprintln!("skipped: needs seccomp filters");
        }
        assert!(!libc::WIFSIGNALED(status), "killed for a system call: wait status {status:#x}");
        assert_eq!(status, 0, "an allocation failed");
    }
}

#[test]
fn guide_lists_every_syscall() {
    let text = include_str!("../docs/malloc.md");
    let list = text.split("## System calls").nth(1).and_then(|rest| rest.split("\n## ").next());
    let rows = || list.unwrap().lines().filter(|line| line.starts_with('|'));
    for (name, _) in MEMORY.iter().chain(&OPTIONAL) {
        let name = format!("`{name}`");
        let is_there = rows().any(|row| row.split('|').nth(1).unwrap().contains(&name));
        assert!(is_there, "{name} is not in the list");
    }
}

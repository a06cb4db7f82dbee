//! A sandbox that was closed before the first use of malloc, and lets nothing through but what the documents list.

#[path = "common/filter.rs"]
mod filter;

use std::ptr::NonNull;

use thiscpu_malloc::{allocate, free, trim};

/// What is needed to have memory at all.
const MEMORY: [(&str, libc::c_long); 5] = [
    ("mmap", libc::SYS_mmap),
    ("munmap", libc::SYS_munmap),
    ("mprotect", libc::SYS_mprotect),
    ("madvise", libc::SYS_madvise),
    ("munlock", libc::SYS_munlock),
];

/// What may be denied.
const OTHERS: [(&str, libc::c_long); 11] = [
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

/// From now on the process ends for whatever is not listed; and `others` has that done with the others.
fn close(others: u32) -> bool {
    let memory = MEMORY.iter().map(|call| (call.1, libc::SECCOMP_RET_ALLOW));
    let others = OTHERS.iter().map(|call| (call.1, others));
    // How this test ends.
    let ends = [(libc::SYS_exit_group, libc::SECCOMP_RET_ALLOW)];
    filter::install(memory.chain(others).chain(ends), libc::SECCOMP_RET_KILL_PROCESS)
}

/// Blocks of many sizes, some of them large; whether all are there.
fn use_all() -> bool {
    let mut blocks = [const { None::<NonNull<u8>> }; 64];
    for (number, block) in blocks.iter_mut().enumerate() {
        *block = allocate(16 << (number % 18));
    }
    let are_all = blocks.iter().all(Option::is_some);
    for block in blocks.into_iter().flatten() {
        // SAFETY: nobody uses it.
        unsafe { free(block) };
    }
    trim(0);
    are_all && allocate(100).is_some()
}

/// How a child ends whose first use is within such a sandbox: 0 for well, 77 where there can be none.
fn first_use_within(others: u32) -> i32 {
    // SAFETY: the child calls nothing that another thread could be in the middle of, but for the C library's malloc, which
    // is whole in a child.
    match unsafe { libc::fork() } {
        0 => {
            let code = if !close(others) { 77 } else { i32::from(!use_all()) };
            // SAFETY: it ends the child.
            unsafe { libc::_exit(code) }
        }
        child => {
            let mut status = -1;
            // SAFETY: one's own child, and an int to be written to.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            status
        }
    }
}

#[test]
fn first_use_makes_only_documented_syscalls() {
    for others in [libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32] {
        let status = first_use_within(others);
        if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 77 {
            return eprintln!("skipped: needs seccomp filters");
        }
        assert!(!libc::WIFSIGNALED(status), "ended for a system call: wait status {status:#x}");
        assert_eq!(status, 0, "no memory");
    }
}

#[test]
fn guide_lists_every_syscall() {
    let text = include_str!("../docs/malloc.md");
    let list = text.split("## System calls").nth(1).and_then(|rest| rest.split("\n## ").next());
    let rows = || list.unwrap().lines().filter(|line| line.starts_with('|'));
    for (name, _) in MEMORY.iter().chain(&OTHERS) {
        let name = format!("`{name}`");
        let is_there = rows().any(|row| row.split('|').nth(1).unwrap().contains(&name));
        assert!(is_there, "{name} is not in the list");
    }
}

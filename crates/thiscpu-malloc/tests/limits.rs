//! Limits on address space and data: after all is freed, the program can have it again.
//!
//! Each test forks a child, because limits are the process's.

use std::ptr::{self, NonNull};

use thiscpu_malloc::export::thiscpu::{Tier, tier};
use thiscpu_malloc::{allocate, free};
use thiscpu_test_support::{child, is_full, is_quick, seccomp};

const MIB: usize = 1 << 20;
/// The memory that a limit leaves.
const ROOM: usize = 256 * MIB;

/// Blocks in a list: each holds the address of the next one in its first word.
struct List(*mut u8);

impl List {
    /// Allocates until there is no memory; returns the bytes.
    fn fill(&mut self, size: usize) -> usize {
        let mut bytes = 0;
        while let Some(block) = allocate(size) {
            // SAFETY: the block holds a pointer, and this list owns it.
            unsafe { block.cast().write(self.0) };
            self.0 = block.as_ptr();
            bytes += size;
        }
        bytes
    }

    fn drain(&mut self) {
        while let Some(block) = NonNull::new(self.0) {
            // SAFETY: the block is allocated, holds a pointer, and is not used any more.
            unsafe {
                self.0 = block.cast().read();
                free(block);
            }
        }
    }
}

/// Returns a size from `/proc/self/status`, in bytes.
fn status_bytes(field: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find(|line| line.starts_with(field)).expect("the field");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<usize>().ok()).expect("KiB") << 10
}

/// Limits address space or data to `ROOM` more bytes.
fn limit(resource: libc::__rlimit_resource_t) {
    let field = if resource == libc::RLIMIT_AS { "VmSize:" } else { "VmData:" };
    let most = (status_bytes(field) + ROOM) as libc::rlim_t;
    let limit = libc::rlimit { rlim_cur: most, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the structure is valid.
    assert_eq!(unsafe { libc::setrlimit(resource, &raw const limit) }, 0);
}

/// Returns whether the program can map that many bytes; unmaps them again.
fn can_map(bytes: usize) -> bool {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping replaces nothing, and no one else knows of it.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let start = libc::mmap(ptr::null_mut(), bytes, access, flags, -1, 0);
        start != libc::MAP_FAILED && libc::munmap(start, bytes) == 0
    }
}

#[test]
fn freed_memory_can_be_had_again_under_a_limit() {
    if is_quick() {
        return;
    }
    let sizes = [(100, 65_536), (20 * MIB, 5_000), (65_536, 100), (3_000, MIB)];
    for (first, second) in sizes.into_iter().take(if is_full() { 4 } else { 2 }) {
        let uses = |resource| child::start(|| use_all_again(resource, first, second));
        let children = [libc::RLIMIT_AS, libc::RLIMIT_DATA].map(uses);
        assert_eq!(children.map(child::wait), [0; 2], "{first} and {second}");
    }
}

/// Fills the memory that a limit leaves, with blocks of one size, another, and the first.
fn use_all_again(resource: libc::__rlimit_resource_t, first: usize, second: usize) {
    let mut list = List(ptr::null_mut());
    let before = allocate(100).expect("memory");
    limit(resource);
    let bytes = [first, second, first].map(|size| {
        let bytes = list.fill(size);
        assert!(!can_map(ROOM / 2));
        list.drain();
        assert!(can_map(ROOM / 2), "{} bytes", status_bytes("VmSize:"));
        bytes
    });
    // SAFETY: the block is allocated, and not used any more.
    unsafe { free(before) };
    assert!(bytes[1] > ROOM / 10 * 7 && bytes[2] >= bytes[0] / 10 * 9, "{bytes:?}");
}

#[test]
fn nothing_is_unmapped_without_a_fence() {
    if tier() == Ok(Tier::Atomic) {
        return eprintln!("skipped: the atomic tier needs no fence");
    }
    let status = child::status_of(|| {
        let mut list = List(ptr::null_mut());
        let denied = [(libc::SYS_membarrier, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32)];
        if seccomp::install(denied, libc::SECCOMP_RET_ALLOW).is_err() {
            return 77;
        }
        limit(libc::RLIMIT_AS);
        list.fill(65_536);
        let before = status_bytes("VmSize:");
        list.drain();
        i32::from(status_bytes("VmSize:") < before)
    });
    if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 77 {
        return eprintln!("skipped: needs seccomp filters");
    }
    assert_eq!(status, 0, "memory was unmapped, or the child failed");
}

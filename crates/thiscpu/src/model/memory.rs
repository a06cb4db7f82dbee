//! Addresses for lanes, and for what is mapped. What is stored in atomics there is the checkers' business.

use std::cell::Cell;
use std::sync::OnceLock;

/// Much more than any test needs.
const BYTES: usize = 256 << 20;

/// The same for what is mapped.
const MAPPED_BYTES: usize = 16 << 20;

/// Hands out zero address space, the same to each execution of a test.
pub(super) struct AddressSpace {
    used: Cell<usize>,
    mapped: Cell<usize>,
}

impl AddressSpace {
    pub(super) fn new() -> AddressSpace {
        AddressSpace { used: Cell::new(0), mapped: Cell::new(0) }
    }

    /// As `sys::machine::Machine::reserve`.
    pub(super) fn reserve(&self, before: usize, bytes: usize, align: usize) -> usize {
        let start = space() + self.used.get();
        let base = (start + before).next_multiple_of(align);
        self.used.set(base + bytes - space());
        assert!(self.used.get() <= BYTES, "a model uses more lanes than there is space for");
        base
    }

    /// As `sys::machine::Machine::map`. Not used again in this execution, because atomics there would go on
    /// with what they were.
    pub(super) fn map(&self, bytes: usize) -> usize {
        let start = (mapped_space() + self.mapped.get()).next_multiple_of(bytes);
        self.mapped.set(start + bytes - mapped_space());
        assert!(self.mapped.get() <= MAPPED_BYTES, "a model maps more than there is space for");
        // SAFETY: this thread's own memory; executions before this one have ended.
        unsafe { core::ptr::write_bytes(start as *mut u8, 0, bytes) };
        start
    }
}

/// Only ever read, so it is everybody's.
fn space() -> usize {
    static SPACE: OnceLock<usize> = OnceLock::new();
    *SPACE.get_or_init(|| map_zeros(BYTES, libc::PROT_READ))
}

/// What is not atomic there is written for real, so each test has its own.
fn mapped_space() -> usize {
    thread_local! {
        static SPACE: usize = map_zeros(MAPPED_BYTES, libc::PROT_READ | libc::PROT_WRITE);
    }
    SPACE.with(|&start| start)
}

/// A mapping that is never unmapped, and reads as zero.
fn map_zeros(bytes: usize, access: i32) -> usize {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: it is put where nothing is.
    let start = unsafe { libc::mmap(core::ptr::null_mut(), bytes, access, flags, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED, "no address space for a model");
    start as usize
}

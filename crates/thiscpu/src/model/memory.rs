//! Address space for lanes and mappings. The checkers keep the values of atomics in it.

use std::cell::Cell;
use std::sync::OnceLock;

/// The address space for lanes, much more than any test needs.
const BYTES: usize = 256 << 20;

/// The address space for mappings, much more than any test needs.
const MAPPED_BYTES: usize = 16 << 20;

/// Hands out zeroed address space, at the same addresses in each execution of a test.
pub(super) struct AddressSpace {
    used: Cell<usize>,
    mapped: Cell<usize>,
}

impl AddressSpace {
    pub(super) fn new() -> AddressSpace {
        AddressSpace { used: Cell::new(0), mapped: Cell::new(0) }
    }

    /// Reserves address space; see `sys::machine::Machine::reserve`.
    pub(super) fn reserve(&self, before: usize, bytes: usize, align: usize) -> usize {
        let start = space() + self.used.get();
        let base = (start + before).next_multiple_of(align);
        self.used.set(base + bytes - space());
        assert!(
            self.used.get() <= BYTES,
            "address space exhausted: the model allocates too many lanes"
        );
        base
    }

    /// Maps memory; see `sys::machine::Machine::map`.
    ///
    /// An execution never reuses an address, because atomics there would keep their old values.
    pub(super) fn map(&self, bytes: usize) -> usize {
        let start = (mapped_space() + self.mapped.get()).next_multiple_of(bytes);
        self.mapped.set(start + bytes - mapped_space());
        assert!(
            self.mapped.get() <= MAPPED_BYTES,
            "address space exhausted: the model maps too much"
        );
        // SAFETY: the space is this thread's own mapping, large enough by the assertion. The
        // executions that used it before have ended.
        unsafe { core::ptr::write_bytes(start as *mut u8, 0, bytes) };
        start
    }
}

/// Returns the space for lanes. All tests share it, because it is only ever read.
fn space() -> usize {
    static SPACE: OnceLock<usize> = OnceLock::new();
    *SPACE.get_or_init(|| map_zeros(BYTES, libc::PROT_READ))
}

/// Returns the space for mappings, one for each test: plain data in it is really written.
fn mapped_space() -> usize {
    thread_local! {
        static SPACE: usize = map_zeros(MAPPED_BYTES, libc::PROT_READ | libc::PROT_WRITE);
    }
    SPACE.with(|&start| start)
}

/// Creates a mapping that reads as zero and is never unmapped.
fn map_zeros(bytes: usize, access: i32) -> usize {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: without an address the kernel puts the mapping where there is none yet.
    let start = unsafe { libc::mmap(core::ptr::null_mut(), bytes, access, flags, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED, "no address space for a model: mmap failed");
    start as usize
}

//! Addresses for lanes. What is stored there is the checkers' business.

use std::cell::Cell;
use std::sync::OnceLock;

/// Much more than any test needs.
const BYTES: usize = 256 << 20;

/// Hands out readable, zero address space, the same to each execution.
pub(super) struct Arena {
    used: Cell<usize>,
}

impl Arena {
    pub(super) fn new() -> Arena {
        Arena { used: Cell::new(0) }
    }

    /// As `sys::machine::Machine::reserve`.
    pub(super) fn reserve(&self, before: usize, bytes: usize, align: usize) -> usize {
        let start = space() + self.used.get();
        let base = (start + before).next_multiple_of(align);
        self.used.set(base + bytes - space());
        assert!(self.used.get() <= BYTES, "a model uses more lanes than there is space for");
        base
    }
}

fn space() -> usize {
    static SPACE: OnceLock<usize> = OnceLock::new();
    *SPACE.get_or_init(|| {
        // SAFETY: a fresh mapping that is never unmapped; it is only ever read, and reads as zero.
        let start = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                BYTES,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED, "no address space for a model's lanes");
        start as usize
    })
}

//! Memory in which worker processes say what they do, so that the auditor can hold them to it.
//!
//! It is no segment: nothing of the library under test is in it. Each word has one writer, except
//! `held`, which all workers change by atomic additions. SeqCst everywhere, for simplicity.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::atomic::{
    AtomicI64, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use crate::violation::{Checked, within};

/// `held` has a byte for each worker.
pub(super) const WORKERS_MAX: usize = 8;

/// What one worker says.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Statement {
    /// The value of the worker's own counter before and after its current addition.
    pub(super) before: AtomicI64,
    pub(super) after: AtomicI64,
    /// The sums of additions to the common counter that have begun, and that have ended.
    pub(super) begun: AtomicI64,
    pub(super) ended: AtomicI64,
    /// Operations of this worker and its predecessors.
    pub(super) operations: AtomicU64,
    pub(super) refusals: AtomicU64,
    pub(super) waits: AtomicU64,
    /// The longest wait for units, in microseconds.
    pub(super) longest_wait: AtomicU64,
}

#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Witness {
    /// For each worker a byte: units that it certainly holds.
    ///
    /// Added after an acquire and subtracted before the release, so the sum of the bytes never
    /// exceeds the units that are held.
    held: AtomicU64,
    /// The largest sum of the bytes.
    pub(super) held_max: AtomicU64,
    /// Worker processes that were ever started.
    pub(super) started: AtomicU64,
    /// How often a worker process has started its program again.
    pub(super) executed: AtomicU64,
    pub(super) statements: [Statement; WORKERS_MAX],
}

impl Witness {
    /// Makes a witness in memory that processes share; it stays mapped.
    pub(super) fn create() -> io::Result<(&'static Witness, OwnedFd)> {
        // SAFETY: the name is a C string, and the call creates a new descriptor or fails.
        let fd = unsafe { libc::memfd_create(c"torture-witness".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, so nobody else owns it.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(size_of::<Witness>() as u64)?;
        Ok((Witness::attach(file.as_raw_fd())?, file.into()))
    }

    /// Maps the witness of a descriptor.
    pub(super) fn attach(fd: i32) -> io::Result<&'static Witness> {
        let (len, access) = (size_of::<Witness>(), libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let address =
            unsafe { libc::mmap(std::ptr::null_mut(), len, access, libc::MAP_SHARED, fd, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the mapping is aligned to a page, has the length of a witness, whose fields are
        // all atomics of which zeros are values, and is never unmapped.
        Ok(unsafe { &*address.cast::<Witness>() })
    }

    /// Adds to the units that a worker certainly holds, and checks the limit.
    pub(super) fn hold(&self, worker: usize, units: u64, limit: u64) -> Checked {
        let add = units << (8 * worker);
        let held = sum_of_bytes(self.held.fetch_add(add, SeqCst) + add);
        self.held_max.fetch_max(held, Relaxed);
        within("units that are held", (0, limit as i64), held as i64)
    }

    /// Subtracts from the units that a worker certainly holds.
    pub(super) fn give_back(&self, worker: usize, units: u64) {
        self.held.fetch_sub(units << (8 * worker), SeqCst);
    }

    /// Forgets what a stopped worker holds, before it is killed.
    pub(super) fn forget(&self, worker: usize) {
        self.held.fetch_and(!(0xff << (8 * worker)), SeqCst);
    }
}

fn sum_of_bytes(word: u64) -> u64 {
    word.to_le_bytes().into_iter().map(u64::from).sum()
}

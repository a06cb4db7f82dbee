//! The error type of this crate.

use core::fmt;

use crate::tier::Tier;

/// An error; its message says what failed, why, and what to do.
///
/// Errors are rare, and final for the call that returned them. A call that fails changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// `THISCPU_TIER` does not name a tier.
    UnknownTier {
        /// The value of the variable.
        requested: String,
    },
    /// `THISCPU_TIER` names a tier that is not available to this process.
    TierUnavailable {
        /// The tier that the variable names.
        requested: Tier,
        /// The best tier that is available.
        best: Tier,
        /// Why the requested tier is not available.
        reason: &'static str,
    },
    /// The system has no address space for lanes.
    NoAddressSpace {
        /// The requested address space, in bytes.
        bytes: usize,
        /// The number of lanes in it.
        lanes: usize,
        /// The error number of `mmap` or `mprotect`.
        errno: i32,
    },
    /// The system has no memory for objects.
    NoMemory {
        /// The number of objects requested.
        objects: usize,
        /// The size of each object, in bytes.
        bytes: usize,
    },
    /// An item is too large for a lane.
    ItemTooLarge {
        /// The requested size, in bytes.
        bytes: usize,
        /// The largest possible size, in bytes.
        largest: usize,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::UnknownTier { requested } => UnknownTier(requested).fmt(f),
            Error::TierUnavailable { requested, best, reason } => write!(
                f,
                "THISCPU_TIER={requested} is not available: {reason}; unset it to use {best} \
                 (`thiscpu doctor` lists what each tier needs)"
            ),
            Error::NoAddressSpace { bytes, lanes, errno } => write!(
                f,
                "cannot reserve {bytes} bytes of address space for {lanes} lanes: error {errno}; \
                 raise the limit on address space (`ulimit -v`) or the number of mappings \
                 (`sysctl vm.max_map_count`)"
            ),
            Error::NoMemory { objects, bytes } => write!(
                f,
                "cannot allocate {objects} objects of {bytes} bytes: no memory; raise the limit on \
                 address space (`ulimit -v`) or that of the control group"
            ),
            Error::ItemTooLarge { bytes, largest } => write!(
                f,
                "cannot allocate a per-CPU item of {bytes} bytes: it does not fit into a lane; use \
                 at most {largest} bytes"
            ),
        }
    }
}

impl std::error::Error for Error {}

/// The message of [`Error::UnknownTier`], for callers that must not allocate its `String`.
pub(crate) struct UnknownTier<T>(pub(crate) T);

impl<T: fmt::Display> fmt::Display for UnknownTier<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "THISCPU_TIER={} names no tier; use rseq-cid, rseq-cpu or atomic, or unset it to get \
             the best tier that is available",
            self.0
        )
    }
}

//! What can go wrong, in words a person can act on.

use core::fmt;

use crate::tier::Tier;

/// An error of this library: what was asked, what there is, and what to do.
///
/// Errors are rare and final for the call that returned them; nothing was changed or lost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// `THISCPU_TIER` names no tier.
    UnknownTier {
        /// What the variable holds.
        asked: String,
    },
    /// `THISCPU_TIER` names a tier that this process cannot have.
    TierUnavailable {
        /// The tier that was asked for.
        asked: Tier,
        /// The best tier that is there.
        best: Tier,
        /// What stands in the way.
        why: &'static str,
    },
    /// The system gave no address space for lanes.
    NoAddressSpace {
        /// How many bytes of address space were asked for.
        bytes: usize,
        /// How many lanes they are for.
        lanes: usize,
        /// The error number of `mmap`, `mprotect`.
        errno: i32,
    },
    /// The system gave no memory for objects.
    NoMemory {
        /// How many objects were asked for.
        objects: usize,
        /// The bytes of each.
        bytes: usize,
    },
    /// An item that is larger than the room of one lane.
    ItemTooLarge {
        /// The size that was asked for, in bytes.
        bytes: usize,
        /// The largest there is, in bytes.
        largest: usize,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::UnknownTier { asked } => UnknownTier(asked).fmt(f),
            Error::TierUnavailable { asked, best, why } => write!(
                f,
                "THISCPU_TIER={asked} cannot be had here: {why}; the best tier here is {best} \
                 (unset the variable to get it; `thiscpu doctor` says what each tier needs)"
            ),
            Error::NoAddressSpace { bytes, lanes, errno } => write!(
                f,
                "no address space for per-CPU memory: asked for {bytes} bytes ({lanes} lanes), \
                 got error {errno}; raise the limit on address space (`ulimit -v`) or the number \
                 of mappings (`sysctl vm.max_map_count`)"
            ),
            Error::NoMemory { objects, bytes } => write!(
                f,
                "no memory for {objects} objects of {bytes} bytes; raise the limit on address space (`ulimit -v`), or \
                 that of the control group"
            ),
            Error::ItemTooLarge { bytes, largest } => write!(
                f,
                "a per-CPU item of {bytes} bytes does not fit into a lane; the largest is \
                 {largest} bytes"
            ),
        }
    }
}

impl std::error::Error for Error {}

/// The words of [`Error::UnknownTier`], for where its `String` must not be allocated, too.
pub(crate) struct UnknownTier<T>(pub(crate) T);

impl<T: fmt::Display> fmt::Display for UnknownTier<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "THISCPU_TIER={} names no tier; the tiers are rseq-cid, rseq-cpu and atomic (unset the \
             variable for the best one this machine has)",
            self.0
        )
    }
}

//! Which lane is this thread's, seen from outside a section.
//!
//! The answer may be old when it arrives: sections look themselves, the atomic tier does not need
//! it to be right, and slow paths check again.

use super::table;
use crate::sys::rseq;
use crate::sys::tier::{self, Tier};

/// The index of the calling thread in this tier, if it has one.
fn index(tier: Tier) -> Option<usize> {
    match tier {
        Tier::Atomic if rseq::is_done() => None,
        // SAFETY: sched_getcpu has no preconditions; it fails with -1.
        Tier::Atomic => usize::try_from(unsafe { libc::sched_getcpu() }).ok().or(Some(0)),
        _ if rseq::is_registered() => Some(rseq::index()),
        _ => None,
    }
}

/// The entry of this thread's lane, 0 if it has none right now.
pub(crate) fn entry() -> usize {
    tier::chosen().and_then(index).map_or(0, table::entry)
}

/// Tries to give this thread a lane: registers it if that is this library's to do, and takes its
/// index's lane into use. Whether it has one now. Never waits; async-signal-safe.
#[cold]
pub(crate) fn join() -> bool {
    let tier = tier::expect();
    if tier != Tier::Atomic && !rseq::is_registered() && !rseq::register_if_ours() {
        return false;
    }
    index(tier).is_some_and(table::join)
}

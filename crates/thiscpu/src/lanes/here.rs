//! Which lane is this thread's, seen from outside a section.
//!
//! The answer may be old when it arrives: sections look themselves, the atomic tier does not need
//! it to be right, and slow paths check again.

use super::front::Front;
use super::table;
use crate::sys::Host;
use crate::sys::machine::Machine as _;
use crate::sys::rseq::index_ptr;
use crate::sys::startup;
use crate::tier::Tier;

/// The entry of this thread's lane, 0 if it has none right now.
pub(crate) fn entry() -> usize {
    startup::chosen().and_then(Host::index).map_or(0, table::entry)
}

/// Tries to give this thread a lane: registers it if that is this library's to do, and takes its
/// index's lane into use. Whether it has one now. Never waits; async-signal-safe.
#[cold]
pub(crate) fn join() -> bool {
    let tier = startup::tier_or_panic();
    Host::register(tier) && Host::index(tier).is_some_and(table::join)
}

/// Lets this thread's near sections in, if they may be; see [`crate::section::Near`].
#[inline]
pub(crate) fn come_near() {
    if HAS_FRONT {
        index_ptr::set();
    }
}

/// Whether this thread's sections find a front's item, or could not, be it for want of a lane.
#[inline]
pub(crate) fn finds(front: &Front) -> bool {
    near_index()
        .is_none_or(|index| front.is_shown(index) || !front.has(index) || table::entry(index) == 0)
}

/// Lets them find it. Under the lock of its gate, which is open.
pub(crate) fn show(front: &Front, item: usize) {
    if let Some(index) = near_index() {
        front.show(index, item);
    }
}

/// The index that near sections of this thread go by, if they are let in. It may be another when this returns.
fn near_index() -> Option<usize> {
    if HAS_FRONT {
        return index_ptr::index();
    }
    startup::chosen().filter(|&tier| tier != Tier::Atomic).and_then(Host::index)
}

/// Whether there are sections that look in fronts.
pub(crate) const HAS_FRONT: bool = cfg!(all(target_arch = "x86_64", not(thiscpu_model)));

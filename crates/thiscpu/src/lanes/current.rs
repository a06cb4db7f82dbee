//! The calling thread's lane, seen from outside a section.
//!
//! Every answer may be old when it arrives, because the thread may move at any time. Sections look
//! up their lane themselves, the atomic tier works on any lane, and slow paths check again.

use super::direct::{DirectTable, HAS_DIRECT};
use super::{region, table};
use crate::sys::Host;
use crate::sys::atomic::Ordering::{Relaxed, SeqCst};
use crate::sys::cpu_set::CPUS_MAX;
use crate::sys::degradation::{self, DegradationKind};
use crate::sys::machine::Machine as _;
use crate::sys::rseq::index_ptr;
use crate::sys::startup;
use crate::tier::Tier;

/// Returns the table entry of this thread's lane, or 0 if it has none right now.
pub(crate) fn entry() -> usize {
    startup::chosen().and_then(Host::index).map_or(0, table::entry)
}

/// Returns the table entry of a lane for the atomic tier, where any lane is right.
///
/// Usually the lane is that of the CPU that this thread is on. Costs a few loads, and makes no
/// call. Returns 0 if they lead to no lane; then [`entry`] may know one.
#[inline(always)]
pub(crate) fn any_entry() -> usize {
    table::entry(Host::cpu_or_any())
}

/// Tries to give this thread a lane, and returns whether it has one now.
///
/// A caller that gets none uses the shared lane, which is counted. Registers the thread if this
/// library registers threads, and assigns a lane to its index. Never waits; async-signal-safe.
#[cold]
pub(crate) fn acquire_lane() -> bool {
    let has_lane = try_acquire_lane();
    if !has_lane {
        degradation::count_shared_lane_call();
    }
    has_lane
}

/// Acts as [`acquire_lane`], for a caller that counts its use of the shared lane itself.
#[cold]
pub(crate) fn try_acquire_lane() -> bool {
    let tier = startup::tier_or_panic();
    Host::register(tier) && Host::index(tier).is_some_and(assign_lane)
}

/// Assigns a lane to `index`, and returns whether the index has one now.
///
/// Fails if no lane is left, or if another thread is changing the regions. Never waits, so that an
/// add may call it; async-signal-safe.
fn assign_lane(index: usize) -> bool {
    if index >= CPUS_MAX {
        degradation::note(DegradationKind::Lanes, 0);
        return false;
    }
    if table::entry(index) != 0 {
        return true;
    }
    let Some(mut regions) = region::try_lock() else { return false };
    // Relaxed: the number changes only under the lock, which this thread holds.
    let lane = table::IN_USE.load(Relaxed) + 1;
    if table::entry(index) != 0 {
        return true;
    }
    let opened = if lane > region::lanes_max() { Err(0) } else { regions.open_lane(lane) };
    if let Err(errno) = opened {
        degradation::note(DegradationKind::Lanes, errno);
        return false;
    }
    // In this order, so that a sum sees every lane that a thread finds in the table. SeqCst: pairs
    // with the load in `table::in_use`. A fork between the two stores leaves a lane in use that no
    // index leads to; it costs sums a look at zeros until `reclaim_orphaned_lane`.
    table::IN_USE.store(lane, SeqCst);
    // SeqCst, which includes the Release that pairs with the Acquire in `table::entry`: a thread
    // that finds the lane finds its memory accessible.
    table::TABLE.entries[index].store(table::entry_of(lane), SeqCst);
    true
}

/// Lets this thread enter [direct](crate::section::Direct) sections, if it is registered.
#[inline]
pub(crate) fn enable_direct() {
    if HAS_DIRECT {
        index_ptr::set();
    }
}

/// Returns whether this thread's direct sections find the item of `direct`, or never will.
///
/// They never will if the thread has no lane, or an index that the table does not cover.
#[inline]
pub(crate) fn is_published(direct: &DirectTable) -> bool {
    direct_index().is_none_or(|index| {
        direct.is_published(index) || !direct.covers(index) || table::entry(index) == 0
    })
}

/// Publishes the item at `item` in lane 0 to this thread's direct sections.
///
/// The caller holds the lock of the item's gate, which is open.
pub(crate) fn publish(direct: &DirectTable, item: usize) {
    if let Some(index) = direct_index() {
        direct.publish(index, item);
    }
}

/// Returns whether direct sections of this thread find a lane right now.
pub(crate) fn has_direct_lane() -> bool {
    direct_index().map_or(0, table::entry) != 0
}

/// Returns the index that direct sections of this thread use, if it may enter them.
fn direct_index() -> Option<usize> {
    if HAS_DIRECT {
        return index_ptr::index();
    }
    startup::chosen().filter(|&tier| tier != Tier::Atomic).and_then(Host::index)
}

//! The lane table: from the kernel's index (`mm_cid`, `cpu_id`) to a lane.
//!
//! Lanes are numbered in the order in which indices are first seen, so that they are dense however
//! sparse the kernel's numbers are, and a sum walks `1..=in_use()` and nothing else. Lane 0 is
//! nobody's: it holds what all CPUs share, the slow lane among it.
//!
//! An entry is 0 while its index has no lane, then `lane * STRIDE + HALF` for ever. The other half
//! is in an open gate, which is `item + HALF`: the sum of the two is the item's address in that
//! lane, and carries; if either half is missing nothing does, for both are less than `HALF` then.
//! So a section learns from the addition alone that it has a lane and that the gate is open. The
//! table has an entry for each 16-bit number, so that a section needs no check of its range: -1 and
//! -2, which `cpu_id` holds on an unregistered thread, become 65,535 and 65,534, and those never get
//! a lane.

use super::region;
use crate::sys::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, SeqCst},
};
use crate::sys::topology::CPUS_MAX;

/// The distance from an item in one lane to the same item in the next, in bytes.
///
/// Small, so that a process that locks all its memory pays little for a lane it hardly uses; large
/// enough that a million counters take some hundred mappings.
pub(crate) const STRIDE: usize = 256 * 1024;

/// What a ready entry and an open gate have beyond what they stand for: half of all numbers.
pub(crate) const HALF: usize = 1 << 63;

pub(crate) static TABLE: Table =
    Table { _before: 0, entries: [const { AtomicUsize::new(0) }; 1 << 16] };

/// The entries. The first seven are at no multiple of 64 bytes, where objects begin: a load may wait for an earlier store that agrees with it in
/// the twelve lower bits of the address. With the first at a multiple of 1,024 it took 4.6 ns to allocate one of many objects of that size, and 2.5 here (Zen 5).
#[repr(C, align(64))]
pub(crate) struct Table {
    _before: usize,
    pub(crate) entries: [AtomicUsize; 1 << 16],
}

impl Table {
    pub(crate) const fn as_ptr(&self) -> *const AtomicUsize {
        self.entries.as_ptr()
    }
}

/// How many lanes are in use; they are `1..=in_use()`.
static IN_USE: AtomicUsize = AtomicUsize::new(0);

/// The number of lanes in use.
///
/// SeqCst: a slow path reads it after its fence (or after it has flipped a gate); a lane that it
/// then does not see was taken into use later, by a thread whose next look at that gate sees the
/// flip (pairs with the SeqCst store in `join`).
pub(crate) fn in_use() -> usize {
    IN_USE.load(SeqCst)
}

/// The entry of `index`; 0 if it has no lane.
#[inline]
pub(crate) fn entry(index: usize) -> usize {
    // Acquire: pairs with the store in `join`; the lane's memory is accessible.
    TABLE.entries.get(index).map_or(0, |entry| entry.load(Acquire))
}

/// Gives `index` a lane, if there is one left and nobody is changing the regions right now. Never
/// waits, so that an add can call it; async-signal-safe. Whether the index has a lane now.
pub(crate) fn join(index: usize) -> bool {
    if index >= CPUS_MAX {
        return false;
    }
    if entry(index) != 0 {
        return true;
    }
    let Some(mut regions) = region::try_lock() else { return false };
    // Only changed under the lock.
    let lane = IN_USE.load(Relaxed) + 1;
    if entry(index) != 0 {
        return true;
    }
    if lane > region::lanes_max() || !regions.open_lane(lane) {
        return false;
    }
    // In this order: whoever finds the lane in the table is seen by a sum. A fork between the two
    // leaves a lane in use that no index leads to, which costs sums a look at zeros.
    IN_USE.store(lane, SeqCst);
    TABLE.entries[index].store(entry_of(lane), SeqCst);
    true
}

/// The entry that leads to a lane.
pub(crate) fn entry_of(lane: usize) -> usize {
    lane * STRIDE + HALF
}

/// How far an item is from lane 0 in the lane of an entry, in bytes; lane 0 itself if that is 0.
pub(crate) fn distance_of(entry: usize) -> usize {
    entry & !HALF
}

/// The lane of an entry; 0 if that is 0.
pub(crate) fn lane_of(entry: usize) -> usize {
    distance_of(entry) / STRIDE
}

/// Undoes the half of a `join` that a fork cut in two. Only under the lock of the regions.
pub(super) fn take_back_lost_lane() {
    // Relaxed: only changed under the lock.
    let last = IN_USE.load(Relaxed);
    let entry = entry_of(last);
    if last > 0 && TABLE.entries[..CPUS_MAX].iter().all(|there| there.load(Relaxed) != entry) {
        IN_USE.store(last - 1, SeqCst);
    }
}

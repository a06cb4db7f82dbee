//! The lane table: from the kernel's index (`mm_cid` or `cpu_id`) to a lane.
//!
//! Lanes are numbered in the order in which their indices are first seen. So they are dense however
//! sparse the kernel's numbers are, and a sum reads lanes `1..=in_use()` and nothing else. Lane 0
//! belongs to no index: it is the shared lane, and holds whatever else all CPUs share.
//!
//! An entry is 0 while its index has no lane, and `lane * STRIDE + READY_BIT` forever after. An
//! open gate holds `item + READY_BIT`. The sum of the two is the item's address in that lane, and
//! the addition carries. If either bit is missing the addition does not carry, because the rest of
//! both operands is less than `READY_BIT`. So one addition tells a section that it has a lane and
//! that the gate is open.
//!
//! The table has an entry for each 16-bit number, so that a section need not check its index.
//! `cpu_id` of an unregistered thread is -1 or -2, which the section reads as 65,535 or 65,534;
//! those indices never get a lane.

use crate::sys::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, SeqCst},
};
use crate::sys::cpu_set::CPUS_MAX;

/// The distance from an item in one lane to the same item in the next, in bytes.
///
/// It is small, so that a process that locks all its memory pays little for a lane it hardly uses.
/// It is large enough that a million counters need only some hundred mappings.
pub(crate) const STRIDE: usize = 256 * 1024;

/// The bit of a table entry with a lane, and of an open gate: half of all numbers.
pub(crate) const READY_BIT: usize = 1 << 63;

pub(crate) static TABLE: Table =
    Table { _before: 0, entries: [const { AtomicUsize::new(0) }; 1 << 16] };

/// The lane table.
///
/// No entry before the eighth is at a multiple of 64 bytes, where objects begin. A load may wait
/// for an earlier store whose address agrees with it in the lower twelve bits. With the first entry
/// at a multiple of 1,024, allocating one of many objects of that size took 4.6 ns instead of 2.5
/// (Zen 5).
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
pub(super) static IN_USE: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of lanes in use.
///
/// A slow path reads it after its fence, or after it has flipped a gate. If another thread takes a
/// lane into use later, that thread's next load of the gate sees the flip.
pub(crate) fn in_use() -> usize {
    // SeqCst: pairs with the SeqCst store in `current::assign_lane`. One order of these and of the
    // accesses of the gate is what the sentence above rests on.
    IN_USE.load(SeqCst)
}

/// Returns the entry of `index`, or 0 if it has no lane.
#[inline]
pub(crate) fn entry(index: usize) -> usize {
    // Acquire: pairs with the store in `current::assign_lane`; the lane's memory is accessible.
    TABLE.entries.get(index).map_or(0, |entry| entry.load(Acquire))
}

pub(crate) fn entry_of(lane: usize) -> usize {
    lane * STRIDE + READY_BIT
}

/// Returns the distance of an entry's lane from lane 0, in bytes; 0 without a lane.
pub(crate) fn distance_of(entry: usize) -> usize {
    entry & !READY_BIT
}

/// Returns the lane of an entry; 0 for an entry without a lane.
pub(crate) fn lane_of(entry: usize) -> usize {
    distance_of(entry) / STRIDE
}

/// Takes the newest lane out of use if no index leads to it.
///
/// That is the case if the process was forked in the middle of `current::assign_lane`. The caller
/// holds the lock of the regions.
pub(super) fn reclaim_orphaned_lane() {
    // Relaxed: the number and the entries change only under the lock, which the caller holds.
    let last = IN_USE.load(Relaxed);
    let entry = entry_of(last);
    if last > 0 && TABLE.entries[..CPUS_MAX].iter().all(|there| there.load(Relaxed) != entry) {
        IN_USE.store(last - 1, SeqCst);
    }
}

//! Where the words of one budget are.

use super::pair::Pair;
use super::pool::{LANES_MAX, Pool, SLOTS_MAX, UNITS_MAX};
use super::slot::Slot;
use super::waiter::Waiter;
use crate::sys::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire},
};
use crate::sys::double::Double;

/// The words of a budget that all participants use: one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Record {
    pub(super) pool: Pool,
    /// The limit, and the version of the operation that set it.
    pub(super) limit: Double,
    /// The ticket of the next waiter.
    pub(super) tickets: AtomicU64,
    /// One more than the highest slot that has used the budget.
    used_slots: AtomicU64,
    /// The units that were released but not held.
    pub(super) over_released: AtomicU64,
    /// Not 0 after a process has reported such units.
    pub(super) is_reported: AtomicU64,
}

impl Record {
    /// Returns a budget whose units are all free.
    ///
    /// # Panics
    ///
    /// If `limit` is above [`UNITS_MAX`].
    pub(crate) const fn new(limit: u64) -> Record {
        assert!(limit <= UNITS_MAX, "the limit of a shared budget is below 2^30");
        Record {
            pool: Pool::new(limit),
            limit: Double::new([limit, 0]),
            tickets: AtomicU64::new(0),
            used_slots: AtomicU64::new(0),
            over_released: AtomicU64::new(0),
            is_reported: AtomicU64::new(0),
        }
    }
}

#[cfg(all(test, not(thiscpu_model)))]
impl Record {
    /// Returns a budget whose next operation has the version of unused pairs.
    pub(super) fn new_before_version_0(limit: u64) -> Record {
        let pool = Pool::new_before_version_0(limit);
        Record { pool, ..Record::new(limit) }
    }
}

/// The pairs of a budget: in each lane those of all slots, side by side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pairs {
    first: *const Pair,
    /// The distance between two lanes, in bytes.
    stride: usize,
    lanes: u32,
    slots: u32,
}

impl Pairs {
    /// Describes pairs in memory.
    ///
    /// # Safety
    ///
    /// In each of `lanes` lanes, which begin `stride` bytes apart, there are pairs of `slots`
    /// slots. They stay mapped while the value or a copy is used.
    ///
    /// # Panics
    ///
    /// If there are none, or more than the pool can name.
    pub(crate) unsafe fn new(first: *const Pair, stride: usize, lanes: u32, slots: u32) -> Pairs {
        assert!((1..=LANES_MAX).contains(&lanes), "the number of lanes was checked");
        assert!((1..=SLOTS_MAX).contains(&slots), "the number of slots was checked");
        Pairs { first, stride, lanes, slots }
    }

    #[inline(always)]
    pub(crate) fn lanes(&self) -> u32 {
        self.lanes
    }

    /// Returns the pair of a slot in a lane, if both exist.
    #[inline(always)]
    pub(super) fn get(&self, slot: u32, lane: u32) -> Option<&Pair> {
        if slot >= self.slots || lane >= self.lanes {
            return None;
        }
        let at = lane as usize * self.stride + slot as usize * size_of::<Pair>();
        // SAFETY: slot and lane are below their numbers, so `new`'s caller guarantees the pair.
        Some(unsafe { &*self.first.byte_add(at) })
    }

    /// Returns the pair of a slot in a lane.
    ///
    /// # Safety
    ///
    /// The slot must be below the number of slots, and the lane below [`lanes`](Self::lanes).
    #[cfg(not(thiscpu_model))]
    #[inline(always)]
    pub(crate) unsafe fn get_unchecked(&self, slot: usize, lane: u32) -> &Pair {
        // SAFETY: slot and lane are below their numbers, so `new`'s caller guarantees the pair.
        unsafe { &*self.first.add(slot).byte_add(lane as usize * self.stride) }
    }

    /// Returns the pairs of a slot, in all lanes.
    pub(super) fn of(&self, slot: u32) -> impl Iterator<Item = &Pair> {
        (0..self.lanes).filter_map(move |lane| self.get(slot, lane))
    }
}

/// The slots of a segment, each a word in a larger record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    first: *const Slot,
    /// The distance between two slots, in bytes.
    stride: usize,
    count: u32,
}

impl Slots {
    /// Describes slots in memory.
    ///
    /// # Safety
    ///
    /// There are `count` slots, which begin `stride` bytes apart. They stay mapped while the value
    /// or a copy is used.
    pub(crate) unsafe fn new(first: *const Slot, stride: usize, count: u32) -> Slots {
        Slots { first, stride, count }
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn get(&self, slot: u32) -> Option<&Slot> {
        // SAFETY: the number is below the count, so `new`'s caller guarantees the slot.
        (slot < self.count).then(|| unsafe { &*self.first.byte_add(slot as usize * self.stride) })
    }
}

/// The memory of one budget, and the tables of its segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) record: &'a Record,
    pub(crate) pairs: Pairs,
    pub(crate) slots: Slots,
    pub(crate) waiters: &'a [Waiter],
    /// The number of the budget in the segment, by which its waiters are found.
    pub(crate) id: u64,
}

impl Parts<'_> {
    /// Returns the number of slots, from 0 on, whose pairs may not be zeros.
    pub(super) fn used_slots(&self) -> u32 {
        // Acquire: pairs with the exchange below. A caller has loaded the pool before, so it sees
        // the slots of all operations that it saw.
        let used = self.record.used_slots.load(Acquire);
        used.min(u64::from(self.slots.count())) as u32
    }

    /// Counts a slot as used, before its first operation.
    pub(super) fn use_slot(&self, slot: u32) {
        let mut used = self.record.used_slots.load(Acquire);
        while used <= u64::from(slot) {
            let next = u64::from(slot) + 1;
            // AcqRel: the exchange of the pool comes after it.
            match self.record.used_slots.compare_exchange(used, next, AcqRel, Acquire) {
                Ok(_) => return,
                Err(found) => used = found,
            }
        }
    }
}

//! Releases of more units than are held: counted and reported, at no other process's expense.
//!
//! A participant gets units from the pool, and returns units to it. The sum of held and credit over
//! all pairs of its slot is the difference. So the sum is below 0 only if callers have released
//! units that the participant did not hold. Fast calls move units within a pair, and only
//! operations change the sum. So the sum is exact if the pool has not changed meanwhile.

use super::memory::Parts;
use super::pool::{Kind, Mode, Operation, UNITS_MAX};
use super::slot::World;
use crate::sys::atomic::Ordering::Relaxed;

impl Parts<'_> {
    /// Returns how many units were released but not held, as far as that was found.
    pub(crate) fn over_released(&self) -> u64 {
        // Relaxed: a statistic, which orders nothing.
        self.record.over_released.load(Relaxed)
    }

    /// Takes units back that participants have released but did not hold, and counts them.
    ///
    /// The commit is a take for the slot that has released them. So units leave the pool, and the
    /// sum of the slot is not negative any more. If other processes have acquired these units, the
    /// pool then has fewer than 0. So all free units must be in the pool; otherwise this returns
    /// false, and the next recall calls it.
    pub(super) fn discard_excess(&self, world: &impl World) -> bool {
        for slot in 0..self.used_slots() {
            loop {
                let now = self.settle(world);
                let excess = self.sum_of(slot).min(0).unsigned_abs().min(UNITS_MAX);
                if matches!(now.mode(), Mode::PerCpu | Mode::Recall) {
                    return false;
                }
                if excess == 0 {
                    break;
                }
                let operation = Operation::on_pair(Kind::Take, excess, (slot, 0));
                let units = now.units() - excess as i64;
                if self.commit(now, now.next(units, now.mode(), operation), world) {
                    self.count_over_released(slot, excess, world);
                    break;
                }
            }
        }
        true
    }

    /// Discards an excess if more units are free than the limit allows.
    ///
    /// While another process changes the limit, the comparison may be wrong, which does no harm.
    pub(super) fn discard_excess_if_above_limit(&self, units: i64, world: &impl World) {
        if units > self.record.limit.first().min(UNITS_MAX) as i64 {
            self.recall_all(world);
            self.discard_excess(world);
        }
    }

    /// Returns the units that a slot has in all its pairs; exact if the pool does not change.
    pub(super) fn sum_of(&self, slot: u32) -> i64 {
        let units = self.pairs.of(slot).map(|pair| pair.first().units());
        i64::from(units.fold(0_i32, i32::wrapping_add))
    }

    /// Counts units that the participant of a slot has released, but did not hold.
    ///
    /// If a process is killed before this call, it has discarded the units, but nobody counts them.
    pub(crate) fn count_over_released(&self, slot: u32, units: u64, world: &impl World) {
        // Relaxed, all: a statistic, which orders nothing.
        let counter = &self.record.over_released;
        let mut before = counter.load(Relaxed);
        while let Err(now) =
            counter.compare_exchange(before, before.saturating_add(units), Relaxed, Relaxed)
        {
            before = now;
        }
        if self.record.is_reported.swap(1, Relaxed) == 0 {
            world.report_over_release(slot, units, self.record.limit.first());
        }
    }
}

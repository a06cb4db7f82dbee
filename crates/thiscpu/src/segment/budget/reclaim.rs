//! How the units of a dead participant come back.

use super::memory::{Parts, Slots};
use super::pool::{Kind, Mode, Operation, State};
use super::slot::{Participant, SlotState, World};
use super::waiter::{Waiter, WaiterState};

impl Parts<'_> {
    /// Reclaims from participants that have ended, as far as they matter for this budget.
    ///
    /// They matter if they have units, or are first in the queue. Returns whether there was one.
    /// `now` is settled: an operation that is not applied is in no pair yet.
    pub(super) fn reclaim_dead(&self, now: State, me: Participant, world: &impl World) -> bool {
        let mut any = false;
        for slot in 0..self.used_slots() {
            any |= slot != me.slot && self.has_units(slot) && self.reclaim_if_dead(slot, world);
        }
        // Each round takes one waiter out of the queue.
        for _ in self.waiters.iter().filter(|_| now.mode() == Mode::Queued) {
            match self.first_waiter() {
                Some(first) if first.slot != me.slot && self.reclaim_if_dead(first.slot, world) => {
                    any = true;
                }
                _ => break,
            }
        }
        any
    }

    /// Reclaims from the participant of a slot, if it has ended.
    fn reclaim_if_dead(&self, number: u32, world: &impl World) -> bool {
        let Some(slot) = self.slots.get(number) else { return false };
        let Some(generation) = slot.generation_of_dead(number, world) else { return false };
        self.reclaim(number, generation, world);
        world.reclaim(number, generation);
        true
    }

    /// Returns whether a pair of a slot is not empty.
    fn has_units(&self, slot: u32) -> bool {
        self.pairs.of(slot).any(|pair| !pair.first().is_zero())
    }

    /// Returns to the pool all that the dead participant of a slot held in this budget.
    ///
    /// Anybody may repeat this. It does nothing if the slot is not dead in this generation.
    pub(crate) fn reclaim(&self, slot: u32, generation: u64, world: &impl World) {
        loop {
            let now = self.settle(world);
            // After the load of the pool: if somebody has freed the slot since, and its new
            // participant holds something, the pool has changed.
            if !self.slots.get(slot).is_some_and(|it| it.is(SlotState::Dead, generation)) {
                return;
            }
            // All pairs at once, because held of one pair may be negative. They do not change
            // while the pool does not: their threads are gone, and its operation is finished.
            let sum = self.sum_of(slot);
            let units = now.units() + sum;
            if units < 0 && matches!(now.mode(), Mode::PerCpu | Mode::Recall) {
                // More was released than held. Credit in pairs would exceed the limit, so all of
                // it must be in the pool first.
                self.recall_all(world);
                continue;
            }
            // Also if there is nothing to return: a grant to the slot that is about to be
            // committed must fail.
            let operation = Operation::on_pair(Kind::Reclaim, 0, (slot, 0));
            if self.commit(now, now.next(units, now.mode(), operation), world) {
                if sum < 0 {
                    self.count_over_released(slot, sum.unsigned_abs(), world);
                }
                break;
            }
        }
        self.serve(world);
    }
}

/// Frees the slot of a dead participant, from which each budget has reclaimed.
///
/// Anybody may repeat this.
pub(crate) fn free_slot(slots: &Slots, waiters: &[Waiter], slot: u32, generation: u64) {
    let Some(word) = slots.get(slot) else { return };
    for waiter in waiters {
        let status = waiter.status();
        let is_used = status.state() != WaiterState::Free && status.slot() == slot;
        // After the load: while the slot is dead in this generation, its waiters are of this
        // generation too.
        if is_used && word.is(SlotState::Dead, generation) {
            waiter.change(status, status.with(WaiterState::Free));
        }
    }
    word.free(generation);
}

/// Frees a slot if its participant has ended. A process that needs a slot calls this.
pub(crate) fn free_slot_of_dead(slots: &Slots, number: u32, world: &impl World) {
    let dead = slots.get(number).and_then(|slot| slot.generation_of_dead(number, world));
    if let Some(generation) = dead {
        world.reclaim(number, generation);
    }
}

/// Reclaims all that a dead participant held in some budgets, which are all of a segment.
#[cfg(thiscpu_model)]
pub(crate) fn reclaim_all<'a>(
    budgets: impl IntoIterator<Item = Parts<'a>>,
    slot: u32,
    generation: u64,
    world: &impl World,
) {
    let mut tables = None;
    for budget in budgets {
        budget.reclaim(slot, generation, world);
        tables = Some((budget.slots, budget.waiters));
    }
    if let Some((slots, waiters)) = tables {
        free_slot(&slots, waiters, slot, generation);
    }
}

#[cfg(all(test, not(thiscpu_model)))]
mod tests {
    use super::super::slot::Alone;
    use super::super::{Pair, Pairs, Record, Slot};
    use super::*;

    #[test]
    fn credit_does_not_exceed_limit_when_excess_of_dead_is_found() {
        let (record, pairs) = (Record::new(100), [const { Pair::new() }; 2]);
        let slots = [const { Slot::new() }; 2];
        assert!(slots.iter().all(|slot| slot.occupy(0)));
        // SAFETY: the pairs of two slots in one lane, which live until the end.
        let pairs = unsafe { Pairs::new(pairs.as_ptr(), 0, 1, 2) };
        // SAFETY: two slots, which live until the end.
        let all = unsafe { Slots::new(slots.as_ptr(), size_of::<Slot>(), 2) };
        let budget = Parts { record: &record, pairs, slots: all, waiters: &[], id: 0 };
        let [wrong, right] = [0, 1].map(|slot| Participant { slot, generation: 0 });
        assert!(budget.try_acquire(right, 0, 50, &Alone).is_ok());
        budget.release(wrong, 0, 30, &Alone);
        assert!(budget.try_acquire(right, 0, 70, &Alone).is_ok());
        budget.release(right, 0, 60, &Alone);
        assert!(slots[0].declare_dead(0));
        budget.reclaim(0, 0, &Alone);
        assert_eq!(budget.over_released(), 30);
        let more = (0..100).take_while(|_| budget.try_acquire(right, 0, 1, &Alone).is_ok()).count();
        assert_eq!(60 + more, 100);
    }
}

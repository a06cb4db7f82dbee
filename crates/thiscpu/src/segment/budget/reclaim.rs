//! How the units of a dead participant come back.

use super::memory::{Parts, Slots};
use super::pool::{Kind, Operation};
use super::slot::{Participant, SlotState, World};
use super::waiter::{Waiter, WaiterState};

impl Parts<'_> {
    /// Reclaims from participants that have ended, as far as they matter for this budget.
    ///
    /// Returns whether there was one.
    pub(super) fn reclaim_dead(&self, me: Participant, world: &impl World) -> bool {
        // An operation that is committed, but not applied, is not in the pairs yet.
        self.settle(world);
        let mut any = false;
        for number in (0..self.slots.count()).filter(|&number| number != me.slot) {
            let Some(slot) = self.slots.get(number) else { continue };
            let (state, generation) = slot.load();
            let matters = match state {
                SlotState::Free => false,
                SlotState::Live => self.is_used_by(number) && world.is_dead(number, generation),
                SlotState::Dead => self.has_units(number),
            };
            if matters {
                // The intent is recorded first. If this fails, another process came first.
                slot.declare_dead(generation);
                self.reclaim(number, generation, world);
                world.reclaim(number, generation);
                any = true;
            }
        }
        any
    }

    /// Returns whether a slot has units or waiters of this budget.
    fn is_used_by(&self, slot: u32) -> bool {
        let waits = |waiter: &Waiter| {
            let waiting = waiter.waiting();
            waiting
                .is_some_and(|(status, request)| status.slot() == slot && request.budget == self.id)
        };
        self.has_units(slot) || self.waiters.iter().any(waits)
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
            let sum =
                self.pairs.of(slot).fold(0_i32, |sum, it| sum.wrapping_add(it.first().units()));
            let units = now.units() + i64::from(sum);
            // Also if there is nothing to return: a grant to the slot that is about to be
            // committed must fail.
            let operation = Operation::on_pair(Kind::Reclaim, 0, (slot, 0));
            if self.commit(now, now.next(units, now.mode(), operation), world) {
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
pub(crate) fn free_slot_of_dead(slots: &Slots, slot: u32, world: &impl World) {
    let Some(word) = slots.get(slot) else { return };
    let (state, generation) = word.load();
    let is_dead = match state {
        SlotState::Free => false,
        SlotState::Live => world.is_dead(slot, generation),
        SlotState::Dead => true,
    };
    if is_dead {
        word.declare_dead(generation);
        world.reclaim(slot, generation);
    }
}

/// Reclaims all that a dead participant held in some budgets, which are all of a segment.
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

//! How an operation is committed, and finished by anybody.
//!
//! An exchange of the pool commits an operation, and names the pair or the waiter that must follow.
//! A process that begins the next operation first *settles* the pool: it finishes the last one. A
//! helper loads what must follow, then looks again whether the pool is unchanged, and only then
//! exchanges. If the pool is unchanged, nothing newer was loaded. If it changes later, the
//! operation was finished before, and the exchange fails.

use super::memory::Parts;
use super::pair::Pair;
use super::pool::{Kind, Operation, State};
use super::slot::World;
use super::waiter::{Request, Status, Waiter, WaiterState};
use crate::sys::Host;
use crate::sys::machine::Machine as _;

/// How often a helper looks at a pair before it helps: its owner is usually about to.
const PATIENCE: u32 = if cfg!(thiscpu_model) { 0 } else { 100 };

impl Parts<'_> {
    /// Returns a state of the pool whose operation is finished.
    pub(super) fn settle(&self, world: &impl World) -> State {
        loop {
            let now = self.record.pool.load();
            if self.finish(now, PATIENCE, world) {
                return now;
            }
            Host::pause();
        }
    }

    /// Commits the operation of `next` and finishes it, if the settled state `now` is the pool's.
    pub(super) fn commit(&self, now: State, next: State, world: &impl World) -> bool {
        if self.has_stamp_of(next) {
            // The stamp of an operation that had this version once would hide this one. While the
            // pool is unchanged, no stamp changes.
            self.record.pool.exchange(now, now.with_mode(now.mode()));
            return false;
        }
        if !self.record.pool.exchange(now, next) {
            Host::pause();
            return false;
        }
        self.finish(next, 0, world);
        true
    }

    /// Returns whether something that an operation is about to change has its stamp already.
    fn has_stamp_of(&self, next: State) -> bool {
        let is_stamped = |(slot, lane): (u32, u32)| {
            self.pairs.get(slot, lane).is_some_and(|pair| pair.load().is_stamped(next))
        };
        match next.kind() {
            Kind::None | Kind::Cancel => false,
            Kind::Take | Kind::Give | Kind::Pull => is_stamped(next.pair()),
            Kind::Reclaim => self.pairs.of(next.pair().0).any(|it| it.load().is_stamped(next)),
            Kind::Grant => self
                .named_waiter(next)
                .is_some_and(|(_, status, request)| is_stamped((status.slot(), request.lane))),
            Kind::Limit => self.record.limit.second() == next.version(),
        }
    }

    /// Finishes the operation of a state; returns false if the pool has changed.
    fn finish(&self, now: State, patience: u32, world: &impl World) -> bool {
        match now.kind() {
            Kind::None => true,
            Kind::Take | Kind::Give => match self.pairs.get(now.pair().0, now.pair().1) {
                Some(pair) => self.apply(pair, now, patience).is_some(),
                // A damaged pool: nothing can be finished.
                None => true,
            },
            Kind::Pull => self.finish_pull(now, patience),
            Kind::Reclaim => self.finish_reclaim(now),
            Kind::Grant => self.finish_grant(now, patience, world),
            Kind::Cancel => self.finish_cancel(now),
            Kind::Limit => self.finish_limit(now),
        }
    }

    /// Applies an operation to its pair, and returns what a pull took out.
    ///
    /// `None` if the pool has changed.
    pub(super) fn apply(&self, pair: &Pair, now: State, mut patience: u32) -> Option<u64> {
        loop {
            let old = pair.load();
            if old.is_stamped(now) {
                return Some(old.out());
            }
            if patience > 0 {
                patience -= 1;
                Host::pause();
                continue;
            }
            // The second look. After the loads: if the pool is unchanged, the pair is from before
            // the operation, because each operation stamps the pair.
            if !self.record.pool.is_still(now) {
                return None;
            }
            let new = old.after(now);
            if pair.exchange(old, new) {
                return Some(new.out());
            }
        }
    }

    /// Adds what a pull took out to the pool: this is the commit of a pull.
    fn finish_pull(&self, now: State, patience: u32) -> bool {
        let (slot, lane) = now.pair();
        let out = match self.pairs.get(slot, lane) {
            Some(pair) => self.apply(pair, now, patience),
            None => Some(0),
        };
        if let Some(out) = out {
            let units = now.units() + out as i64;
            self.record.pool.exchange(now, now.next(units, now.mode(), Operation::NONE));
        }
        false
    }

    /// Zeros all pairs of a dead slot.
    fn finish_reclaim(&self, now: State) -> bool {
        for pair in self.pairs.of(now.pair().0) {
            loop {
                let old = pair.load();
                if old.first().is_zero() || old.is_stamped(now) {
                    break;
                }
                // The second look, as in `apply`: the slot may have another participant by now.
                if !self.record.pool.is_still(now) {
                    return false;
                }
                if pair.exchange(old, old.after(now)) {
                    break;
                }
            }
        }
        true
    }

    /// Returns the waiter that an operation names, if it still waits for this budget.
    ///
    /// A waiter is not freed while the pool names it, so the pool must be looked at again before
    /// it is changed.
    pub(super) fn named_waiter(&self, now: State) -> Option<(&Waiter, Status, Request)> {
        let waiter = self.waiters.get(now.waiter() as usize)?;
        let (status, request) = waiter.waiting()?;
        (request.budget == self.id).then_some((waiter, status, request))
    }

    /// Gives granted units to the pair of a waiter, and then tells the waiter.
    fn finish_grant(&self, now: State, patience: u32, world: &impl World) -> bool {
        let Some((waiter, status, request)) = self.named_waiter(now) else { return true };
        if !self.record.pool.is_still(now) {
            return false;
        }
        if let Some(pair) = self.pairs.get(status.slot(), request.lane)
            && self.apply(pair, now, patience).is_none()
        {
            return false;
        }
        if waiter.change(status, status.with(WaiterState::Granted)) {
            waiter.count_wake();
            world.wake(waiter);
        }
        true
    }

    /// Tells a waiter that it waits no longer.
    fn finish_cancel(&self, now: State) -> bool {
        let Some((waiter, status, _)) = self.named_waiter(now) else { return true };
        if !self.record.pool.is_still(now) {
            return false;
        }
        waiter.change(status, status.with(WaiterState::Canceled));
        true
    }

    /// Stores a new limit.
    fn finish_limit(&self, now: State) -> bool {
        loop {
            let old = self.record.limit.load();
            if old[1] == now.version() {
                return true;
            }
            // The second look, as in `apply`.
            if !self.record.pool.is_still(now) {
                return false;
            }
            if self.record.limit.exchange(old, [now.amount(), now.version()]) {
                return true;
            }
        }
    }
}

#[cfg(all(test, not(thiscpu_model)))]
mod tests {
    use super::super::slot::Alone;
    use super::super::{Pairs, Participant, Record, Slot, Slots};
    use super::*;

    // A pair that was never used has the stamp 0, as if the next operation had been applied.
    #[test]
    fn operation_is_applied_when_its_version_comes_again() {
        let (record, pair, slot) = (Record::new_before_version_0(9), Pair::new(), Slot::new());
        assert!(slot.occupy(0));
        // SAFETY: the one pair of one slot in one lane, which lives until the end.
        let pairs = unsafe { Pairs::new(&pair, 0, 1, 1) };
        // SAFETY: the only slot, which lives until the end.
        let slots = unsafe { Slots::new(&slot, 0, 1) };
        let budget = Parts { record: &record, pairs, slots, waiters: &[], id: 0 };
        let me = Participant { slot: 0, generation: 0 };
        assert!(budget.try_acquire(me, 0, 4, &Alone).is_ok());
        assert_eq!(pair.first().held(), 4);
        assert_eq!(budget.instant(me, &Alone).free, 5);
        budget.release(me, 0, 4, &Alone);
        assert_eq!(budget.instant(me, &Alone).free, 9);
    }
}

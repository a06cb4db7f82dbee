//! Acquires and releases that do not wait.

use super::memory::{Pairs, Parts};
use super::pair::Released;
use super::pool::{Kind, Mode, Operation, State, UNITS_MAX};
use super::recall::Cursor;
use super::slot::{Participant, World};
use crate::budget::TryAcquireError;

/// In shared mode, one operation of so many ends it.
const SHARED_OPERATIONS: u64 = if cfg!(thiscpu_model) { 8 } else { 64 };

impl Pairs {
    /// Returns whether the pair of a participant in a lane is open.
    #[cfg(not(thiscpu_model))]
    pub(crate) fn is_open(&self, me: Participant, lane: u32) -> bool {
        self.get(me.slot, lane).is_some_and(|pair| pair.first().is_open())
    }

    /// Acquires `n` units, if a participant has the credit in a lane.
    pub(crate) fn acquire(&self, me: Participant, lane: u32, n: u64) -> bool {
        self.get(me.slot, lane).is_some_and(|pair| pair.acquire(n))
    }

    /// Releases `n` units to the pair of a participant in a lane, if the pair is open.
    ///
    /// `looks` as in [`Pair::release`](super::Pair::release).
    pub(crate) fn release(&self, me: Participant, lane: u32, n: u64, looks: bool) -> Released {
        self.get(me.slot, lane).map_or(Released::Closed, |pair| pair.release(n, looks))
    }
}

impl Parts<'_> {
    /// Acquires `n` units, or says how many are available.
    ///
    /// Takes credit of this participant in the lane by one exchange, or units of the pool. The
    /// lane must be one of the budget.
    pub(crate) fn try_acquire(
        &self,
        me: Participant,
        lane: u32,
        n: u64,
        world: &impl World,
    ) -> Result<(), TryAcquireError> {
        match self.pairs.acquire(me, lane, n) {
            true => Ok(()),
            false => self.acquire_from_pool(me, lane, n, world),
        }
    }

    /// Releases `n` units that this participant holds. A public budget calls both parts itself.
    #[cfg(any(thiscpu_model, test))]
    pub(crate) fn release(&self, me: Participant, lane: u32, n: u64, world: &impl World) {
        match self.pairs.release(me, lane, n, true) {
            Released::Done => {}
            released => self.release_slow(me, lane, n, released, world),
        }
    }

    /// Acquires `n` units of the pool, or says how many are available.
    #[cold]
    #[inline(never)]
    pub(crate) fn acquire_from_pool(
        &self,
        me: Participant,
        lane: u32,
        n: u64,
        world: &impl World,
    ) -> Result<(), TryAcquireError> {
        self.use_slot(me.slot);
        let mut cursor = Cursor::default();
        // Whether all that participants held which were dead before this call has come back.
        let mut has_reclaimed = false;
        loop {
            let now = self.settle(world);
            match now.mode() {
                Mode::Closed => return Err(TryAcquireError::Closed),
                Mode::PerCpu | Mode::Recall | Mode::Shared if now.has(n) => {
                    if self.take(now, me, lane, n, world) {
                        return Ok(());
                    }
                }
                Mode::PerCpu | Mode::Recall => self.recall(now, &mut cursor, world),
                // After a look without success, because another process may reclaim meanwhile.
                Mode::Shared | Mode::Queued if !has_reclaimed => {
                    has_reclaimed = !self.reclaim_dead(now, me, world);
                    if now.mode() == Mode::Queued {
                        self.serve(world);
                    }
                }
                // The load of the first word of `now` is the instant of the refusal.
                Mode::Shared => {
                    return Err(TryAcquireError::Exhausted { available: now.available() });
                }
                Mode::Queued => return Err(TryAcquireError::Exhausted { available: 0 }),
            }
        }
    }

    /// Acquires as many units of the pool as are available, at most `n`, and returns how many.
    ///
    /// The commit is an exchange of the pool in shared mode, in which the pool has all free units.
    #[cfg(not(thiscpu_model))]
    pub(crate) fn acquire_up_to(
        &self,
        me: Participant,
        lane: u32,
        n: u64,
        world: &impl World,
    ) -> u64 {
        loop {
            match self.acquire_from_pool(me, lane, n, world) {
                Ok(()) => return n,
                Err(TryAcquireError::Exhausted { available: 1.. }) => {}
                Err(_) => return 0,
            }
            let now = self.settle(world);
            let units = now.available().min(n);
            if now.mode() == Mode::Shared && units > 0 && self.take(now, me, lane, units, world) {
                return units;
            }
        }
    }

    /// Takes units from the pool, and a batch for the pair if pairs may be open.
    fn take(&self, now: State, me: Participant, lane: u32, n: u64, world: &impl World) -> bool {
        let units = now.units() - n as i64;
        let operation = Operation::on_pair(Kind::Take, n, (me.slot, lane));
        let next = self.next_for_pair(now, units, operation);
        let next = match next.mode() {
            Mode::PerCpu => next.with_batch(self.pairs.lanes()),
            _ => next,
        };
        self.commit(now, next, world)
    }

    /// Returns the state after a take or give, which may end shared mode.
    fn next_for_pair(&self, now: State, units: i64, operation: Operation) -> State {
        let next = now.next(units, now.mode(), operation);
        let ends_shared = units >= 0
            && matches!(now.mode(), Mode::Recall | Mode::Shared)
            && next.version().is_multiple_of(SHARED_OPERATIONS);
        match ends_shared {
            true => now.next(units, Mode::PerCpu, operation),
            false => next,
        }
    }

    /// Completes a release that the pair did not take.
    #[cold]
    #[inline(never)]
    pub(crate) fn release_slow(
        &self,
        me: Participant,
        lane: u32,
        n: u64,
        released: Released,
        world: &impl World,
    ) {
        if n > UNITS_MAX {
            return self.count_over_released(me.slot, n, world);
        }
        // A recall must find the units, even if they are stray. If the process is killed before
        // this, its slot has used the budget before, or it held none of them.
        self.use_slot(me.slot);
        if released == Released::Stray {
            self.pull_stray(me, lane, world);
            self.discard_excess_if_above_limit(self.settle(world).units(), world);
            return self.serve(world);
        }
        if n == 0 {
            return;
        }
        let mut has_discarded = false;
        loop {
            let now = self.settle(world);
            if now.units() + n as i64 > UNITS_MAX as i64 {
                // The pool has no room, so there are units that no process held. Other processes
                // may have released them.
                if has_discarded {
                    return self.count_over_released(me.slot, n, world);
                }
                self.recall_all(world);
                has_discarded = self.discard_excess(world);
                continue;
            }
            let operation = Operation::on_pair(Kind::Give, n, (me.slot, lane));
            let next = self.next_for_pair(now, now.units() + n as i64, operation);
            if self.commit(now, next, world) {
                self.discard_excess_if_above_limit(next.units(), world);
                // If nobody waits at the commit, a later waiter finds the units itself.
                if next.mode() == Mode::Queued {
                    self.serve(world);
                }
                return;
            }
        }
    }

    /// Brings units to the pool that a release left in a closed pair.
    ///
    /// The release takes effect when they reach the pool, or when somebody opens the pair.
    fn pull_stray(&self, me: Participant, lane: u32, world: &impl World) {
        let Some(pair) = self.pairs.get(me.slot, lane) else { return };
        while pair.first().has_stray_units() {
            let now = self.settle(world);
            let operation = Operation::on_pair(Kind::Pull, 0, (me.slot, lane));
            self.commit(now, now.next(now.units(), now.mode(), operation), world);
        }
        // If another call has pulled the pair, this finishes its pull.
        self.settle(world);
    }
}

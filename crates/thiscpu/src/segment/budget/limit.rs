//! Changes of the limit, and the state of one instant.

use super::memory::Parts;
use super::pool::{Kind, Mode, Operation, UNITS_MAX};
use super::slot::{Participant, World};
use super::waiter::Waiter;

/// How often a reader without write access looks for a limit and units of one state.
#[cfg(not(thiscpu_model))]
pub(super) const LOOKS_MAX: u32 = 100;

/// A budget at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instant {
    pub(crate) limit: u64,
    /// Fewer than 0 if the limit is below the units held.
    pub(crate) free: i64,
    /// Free units are promised to the first waiter.
    pub(crate) is_queued: bool,
    pub(crate) is_closed: bool,
}

impl Parts<'_> {
    /// Returns the limit and the free units at one instant.
    ///
    /// Recalls, as a refusal does. The units of participants that have ended are free.
    pub(crate) fn instant(&self, me: Participant, world: &impl World) -> Instant {
        self.reclaim_dead(self.settle(world), me, world);
        self.recall_all(world);
        self.discard_excess(world);
        loop {
            let now = self.recall_all(world);
            let limit = self.record.limit.first().min(UNITS_MAX);
            // If the pool is unchanged, the limit was that of this state.
            if self.record.pool.is_still(now) {
                let is_closed = now.mode() == Mode::Closed;
                let is_queued = now.mode() == Mode::Queued;
                return Instant { limit, free: now.units(), is_queued, is_closed };
            }
        }
    }

    /// Returns the state that the last operation has left, and whether it has all free units.
    ///
    /// Makes only loads. One of them gives both the units and the mode. The limit is of that state
    /// if the pool is unchanged after it was loaded. If operations always come between, the state
    /// is not said to have all free units.
    #[cfg(not(thiscpu_model))]
    pub(crate) fn committed(&self) -> (Instant, bool) {
        let mut looks = 0;
        loop {
            let now = self.record.pool.load();
            let [stored, version] = self.record.limit.load();
            let limit = match now.kind() {
                // The process that changes the limit has not stored it yet, or was killed before.
                Kind::Limit if version != now.version() => now.amount(),
                _ => stored.min(UNITS_MAX),
            };
            looks += 1;
            let is_still = self.record.pool.is_still(now);
            if is_still || looks == LOOKS_MAX {
                let is_exact = is_still && !matches!(now.mode(), Mode::PerCpu | Mode::Recall);
                let [is_queued, is_closed] =
                    [Mode::Queued, Mode::Closed].map(|mode| now.mode() == mode);
                return (Instant { limit, free: now.units(), is_queued, is_closed }, is_exact);
            }
        }
    }

    /// Returns whether the budget is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.record.pool.load().mode() == Mode::Closed
    }

    /// Returns how many threads and tasks wait.
    pub(crate) fn waiting(&self) -> usize {
        let requests = self.waiters.iter().filter_map(Waiter::waiting);
        requests.filter(|(_, request)| request.budget == self.id).count()
    }

    /// Returns the limit.
    pub(crate) fn limit(&self, world: &impl World) -> u64 {
        // The process that changed it may have been killed before it stored the limit.
        if self.record.pool.load().kind() == Kind::Limit {
            self.settle(world);
        }
        self.record.limit.first()
    }

    /// Changes the limit, to at most [`UNITS_MAX`].
    ///
    /// The commit is an exchange that adds the difference to the pool, which names the limit as
    /// well. Free units may become fewer than 0; then pairs must have no credit.
    pub(crate) fn set_limit(&self, limit: u64, world: &impl World) {
        let limit = limit.min(UNITS_MAX);
        let mut now = self.settle(world);
        loop {
            let old = self.record.limit.first().min(UNITS_MAX);
            let units = now.units() + limit as i64 - old as i64;
            let is_exact = !matches!(now.mode(), Mode::PerCpu | Mode::Recall);
            if units >= 0 || is_exact {
                let next = now.next(units, now.mode(), Operation::limit(limit));
                if self.commit(now, next, world) {
                    break;
                }
                now = self.settle(world);
            } else {
                now = self.recall_all(world);
            }
        }
        self.serve(world);
    }
}

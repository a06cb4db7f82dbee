//! A budget with an oracle of the units that are held.

use std::ops::RangeInclusive;
use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use thiscpu::TryAcquireError::{self, Exhausted};
use thiscpu::{Budget, Lease};

use super::Actor;
use super::bounds::Bounds;
use crate::oracle::{Amounts, Oracle, Range, Spans};
use crate::violation::{Checked, equal, holds, within};

pub(super) struct Units {
    budget: Budget,
    oracle: Oracle,
    /// The units that each worker has acquired, and any thread may release.
    ///
    /// SeqCst, so that no thread finds units here that the oracle does not contain yet.
    held_by: Box<[AtomicU64]>,
    limit: Limit,
    waits: Spans,
}

/// A limit that one thread at a time changes.
struct Limit {
    range: Range,
    now: AtomicI64,
    is_changing: AtomicBool,
    changes: Spans,
}

/// The call that acquires units.
#[derive(Clone, Copy, Debug)]
pub(super) enum Call {
    Try,
    UpTo,
    /// `lease`; the lease is split, merged and forgotten.
    Lease,
    Wait(Duration),
    /// `acquire_async`; the future is polled this often and then dropped.
    Poll(u32),
}

impl Units {
    /// Creates a budget whose limit changes between two values and starts at the lower one.
    pub(super) fn new([low, high]: [u64; 2], slots: usize) -> Self {
        let limit = Limit {
            range: (low as i64, high as i64),
            now: AtomicI64::new(low as i64),
            is_changing: AtomicBool::new(false),
            changes: Spans::default(),
        };
        Units {
            budget: Budget::new(low),
            oracle: Oracle::new(slots),
            held_by: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            limit,
            waits: Spans::default(),
        }
    }

    fn around<R>(&self, ask: impl FnOnce() -> R) -> (Bounds, R) {
        let limit = &self.limit;
        let ask = || (limit.now.load(SeqCst), self.oracle.around(ask));
        let (no_waiters, (is_still, (now, (held, answer)))) =
            self.waits.none_during(|| limit.changes.none_during(ask));
        let limit = if is_still { (now, now) } else { limit.range };
        (Bounds { held, limit, no_waiters }, answer)
    }

    /// Acquires up to `n` units for the worker, and returns their number.
    pub(super) fn acquire(&self, actor: &mut Actor, n: u64, call: Call) -> Checked<u64> {
        actor.ops += 1;
        let mut answer = Ok(0);
        let take = || {
            answer = self.ask(actor.slot, n, call);
            match (answer, call) {
                (Ok(taken), _) => taken as i64,
                // It may have been granted before it was dropped; `poll` has recorded the release.
                (Err(_), Call::Poll(_)) => n as i64,
                (Err(_), _) => 0,
            }
        };
        let (known, _) = self.around(|| self.oracle.take(actor.slot, n as i64, take));
        let taken = answer.unwrap_or(0);
        self.held_by[actor.slot].fetch_add(taken, SeqCst);
        match (answer, call) {
            // A limit below the held units may leave nothing to take.
            (Ok(0), _) => known.check_all_taken()?,
            (Ok(taken), _) => {
                known.check_granted(taken)?;
                if taken < n {
                    known.check_all_taken()?;
                }
            }
            // Enough units may have become available when the time was over.
            (Err(refused), Call::Wait(_)) => known.check_available(refused.available())?,
            (Err(_), Call::Poll(_)) => {}
            (Err(refused), _) => known.check_refused(n, refused.available())?,
        }
        Ok(taken)
    }

    fn ask(&self, slot: usize, n: u64, call: Call) -> Result<u64, TryAcquireError> {
        let budget = &self.budget;
        match call {
            Call::Try => budget.try_acquire(n).map(|()| n),
            Call::UpTo => Ok(budget.try_acquire_up_to(n)),
            Call::Lease => budget.lease(n).map(split_and_merge),
            Call::Wait(long) => self.waits.during(|| budget.acquire_timeout(n, long)).map(|()| n),
            Call::Poll(polls) => self.waits.during(|| self.poll(slot, n, polls)),
        }
    }

    /// Polls a future a few times and drops it.
    ///
    /// It is unknown whether the units were granted by then, so the drop is recorded as a release.
    fn poll(&self, slot: usize, n: u64, polls: u32) -> Result<u64, TryAcquireError> {
        let mut future = Box::pin(self.budget.acquire_async(n));
        for _ in 0..polls {
            match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(lease) => return Ok(lease?.forget()),
                Poll::Pending => std::thread::yield_now(),
            }
        }
        self.oracle.add(slot, Amounts::of([-(n as i64)]), || drop(future));
        Err(Exhausted { available: 0 })
    }

    /// Reserves `n` units, uses some, and releases all. Returns whether they were available.
    pub(super) fn reserve(&self, actor: &mut Actor, n: u64) -> Checked<bool> {
        actor.ops += 1;
        let mut answer = Err(Exhausted { available: 0 });
        let take = || {
            answer = self.budget.try_reserve(n);
            if answer.is_ok() { n as i64 } else { 0 }
        };
        let (known, _) = self.around(|| self.oracle.take(actor.slot, n as i64, take));
        let reserve = match answer {
            Ok(reserve) => reserve,
            Err(refused) => {
                return known.check_refused(n, refused.available()).map(|()| false);
            }
        };
        known.check_granted(n)?;
        let lease = reserve.lease(n / 2);
        holds("half of a reserve can be leased", lease.is_ok())?;
        equal("the other half of a reserve", (n - n / 2) as i64, reserve.available() as i64)?;
        holds("more than a reserve holds cannot be leased", reserve.lease(n + 1 - n / 2).is_err())?;
        drop(lease);
        self.oracle.add(actor.slot, Amounts::of([-(n as i64)]), || drop(reserve));
        Ok(true)
    }

    /// Releases up to `most` units of the worker in slot `whose`, and returns their number.
    ///
    /// For handlers too.
    pub(super) fn release(&self, actor: &mut Actor, whose: usize, most: u64) -> u64 {
        let less = |held: u64| Some(held - held.min(most));
        // The update never fails, because `less` never returns `None`.
        let held = self.held_by[whose].fetch_update(SeqCst, SeqCst, less).unwrap_or(0);
        let n = held.min(most);
        if n > 0 {
            actor.ops += 1;
            let amounts = Amounts::of([-(n as i64)]);
            self.oracle.add(actor.slot, amounts, || self.budget.release(n));
        }
        n
    }

    /// Releases a random number of units of a random worker.
    pub(super) fn release_some(&self, actor: &mut Actor, most: RangeInclusive<u64>) -> Checked {
        let (whose, most) = (self.any_slot(actor), actor.random.u64(most));
        self.release(actor, whose, most);
        Ok(())
    }

    /// Returns the units that the worker in a slot holds and other threads may release.
    pub(super) fn held(&self, slot: usize) -> u64 {
        self.held_by[slot].load(SeqCst)
    }

    pub(super) fn any_slot(&self, actor: &mut Actor) -> usize {
        actor.random.usize(..self.held_by.len())
    }

    pub(super) fn check_available(&self) -> Checked {
        let (known, available) = self.around(|| self.budget.available());
        known.check_available(available)
    }

    pub(super) fn check_held(&self) -> Checked<u64> {
        let (known, acquired) = self.around(|| self.budget.acquired());
        known.check_held(acquired).map(|()| acquired)
    }

    /// Sets another limit, unless another thread is setting one.
    pub(super) fn change_limit(&self, actor: &mut Actor) -> Checked {
        let Limit { range, now, is_changing, changes } = &self.limit;
        if is_changing.swap(true, SeqCst) {
            return Ok(());
        }
        actor.ops += 1;
        let limit = actor.random.i64(range.0..=range.1);
        let found = changes.during(|| {
            self.budget.set_limit(limit as u64);
            now.store(limit, SeqCst);
            self.budget.limit()
        });
        is_changing.store(false, SeqCst);
        equal("the limit just set", limit, found as i64)
    }

    /// Checks the budget in a child and uses it. Units that the parent's threads held stay held.
    pub(super) fn check_in_child(&self, actor: &mut Actor) -> Checked {
        let held = self.check_held()?;
        within("the limit in a child", self.limit.range, self.budget.limit() as i64)?;
        self.check_quiescent(held)?;
        // A budget in per-CPU mode, with credit in a lane.
        self.budget.set_limit(held + (1 << 20));
        for _ in 0..700 {
            self.budget.release(self.budget.try_acquire_up_to(actor.random.u64(1..64)));
        }
        let released = self.held_by[self.any_slot(actor)].swap(0, SeqCst);
        self.budget.release(released);
        self.check_quiescent(held - released)
    }

    /// Checks a budget that no other thread uses and of which `held` units are held.
    fn check_quiescent(&self, held: u64) -> Checked {
        let budget = &self.budget;
        let free = budget.limit().saturating_sub(held);
        let refused = |what, answer| holds(what, answer == Err(Exhausted { available: free }));
        equal("held units", held as i64, budget.acquired() as i64)?;
        equal("available units", free as i64, budget.available() as i64)?;
        refused("a refusal is right", budget.try_acquire(free + 1))?;
        let short = Duration::from_micros(50);
        refused("a wait times out", budget.acquire_timeout(free + 1, short))?;
        equal("units that can be taken", free as i64, budget.try_acquire_up_to(free + 1) as i64)?;
        equal("units left then", 0, budget.available() as i64)?;
        budget.release(free);
        equal("held units after a release", held as i64, budget.acquired() as i64)
    }

    pub(super) fn verify(&mut self) -> Checked {
        let held = self.oracle.settled();
        // Relaxed: the workers have ended.
        let by_workers: u64 = self.held_by.iter().map(|held| held.load(Relaxed)).sum();
        equal("units held by workers", held, by_workers as i64)?;
        equal("the last limit", *self.limit.now.get_mut(), self.budget.limit() as i64)?;
        self.check_quiescent(by_workers)?;
        self.held_by.iter().for_each(|held| self.budget.release(held.load(Relaxed)));
        self.check_quiescent(0)
    }
}

/// Splits a lease, merges its parts, and releases nothing.
fn split_and_merge(mut lease: Lease<'_>) -> u64 {
    let part = lease.split(lease.units() / 3);
    let parts = part.map(|mut part| (part.split(1), part));
    if let Some((first, second)) = parts {
        lease.merge(second);
        first.into_iter().for_each(|first| lease.merge(first));
    }
    lease.forget()
}

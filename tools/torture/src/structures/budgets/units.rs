//! A budget with the books on what is held of it.

use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use thiscpu::{Budget, Exhausted, Lease};

use super::Actor;
use super::known::Known;
use crate::books::{Amounts, Books, Range, Spans};
use crate::wrong::{Checked, equal, holds, within};

pub(super) struct Units {
    budget: Budget,
    books: Books,
    /// What each worker has acquired and anybody may release. SeqCst, so that nobody finds in a hand
    /// what the books do not have yet.
    hands: Box<[AtomicU64]>,
    limit: Limit,
    waits: Spans,
}

/// A limit that is changed by one at a time.
struct Limit {
    range: Range,
    now: AtomicI64,
    is_changing: AtomicBool,
    changes: Spans,
}

/// How units are acquired.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    Try,
    UpTo,
    /// By a lease that is split, merged and forgotten.
    Lease,
    Wait(Duration),
    /// By a future that is polled so often and dropped.
    Poll(u32),
}

impl Units {
    /// With a limit that is the lower one at first.
    pub(super) fn new(limits: (u64, u64), slots: usize) -> Self {
        let limit = Limit {
            range: (limits.0 as i64, limits.1 as i64),
            now: AtomicI64::new(limits.0 as i64),
            is_changing: AtomicBool::new(false),
            changes: Spans::default(),
        };
        Units {
            budget: Budget::new(limits.0),
            books: Books::new(slots),
            hands: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            limit,
            waits: Spans::default(),
        }
    }

    fn around<R>(&self, ask: impl FnOnce() -> R) -> (Known, R) {
        let limit = &self.limit;
        let ask = || (limit.now.load(SeqCst), self.books.around(ask));
        let (nobody_waited, (is_still, (now, (held, answer)))) =
            self.waits.none_during(|| limit.changes.none_during(ask));
        let limit = if is_still { (now, now) } else { limit.range };
        (Known { held, limit, nobody_waited }, answer)
    }

    /// Acquires up to `n` units into the worker's hand. How many it got.
    pub(super) fn acquire(&self, actor: &mut Actor, n: u64, way: Way) -> Checked<u64> {
        actor.ops += 1;
        let mut answer = Ok(0);
        let take = || {
            answer = self.ask(actor.slot, n, way);
            match (answer, way) {
                (Ok(taken), _) => taken as i64,
                // It may have been granted before it gave up, and has been booked as released.
                (Err(_), Way::Poll(_)) => n as i64,
                (Err(_), _) => 0,
            }
        };
        let (known, _) = self.around(|| self.books.take(actor.slot, n as i64, take));
        let taken = answer.unwrap_or(0);
        self.hands[actor.slot].fetch_add(taken, SeqCst);
        match (answer, way) {
            // Where the limit is below what is held there may be nothing to take.
            (Ok(0), _) => known.check_all_taken()?,
            (Ok(taken), _) => {
                known.check_granted(taken)?;
                if taken < n {
                    known.check_all_taken()?;
                }
            }
            // When the time was over there may have been enough again.
            (Err(Exhausted { available }), Way::Wait(_)) => known.check_free(available)?,
            (Err(_), Way::Poll(_)) => {}
            (Err(Exhausted { available }), _) => known.check_refused(n, available)?,
        }
        Ok(taken)
    }

    fn ask(&self, slot: usize, n: u64, way: Way) -> Result<u64, Exhausted> {
        let budget = &self.budget;
        match way {
            Way::Try => budget.try_acquire(n).map(|()| n),
            Way::UpTo => Ok(budget.try_acquire_up_to(n)),
            Way::Lease => budget.lease(n).map(turn_over),
            Way::Wait(long) => self.waits.during(|| budget.acquire_timeout(n, long)).map(|()| n),
            Way::Poll(polls) => self.waits.during(|| self.poll(slot, n, polls)),
        }
    }

    /// Polls so often, and gives up. Nobody knows whether it has been granted by then: to give up is
    /// booked as a release.
    fn poll(&self, slot: usize, n: u64, polls: u32) -> Result<u64, Exhausted> {
        let mut future = Box::pin(self.budget.acquire_async(n));
        for _ in 0..polls {
            match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(lease) => return Ok(lease.forget()),
                Poll::Pending => std::thread::yield_now(),
            }
        }
        self.books.add(slot, Amounts::of([-(n as i64)]), || drop(future));
        Err(Exhausted { available: 0 })
    }

    /// Sets `n` units aside, uses some, and gives all back. Whether they were there.
    pub(super) fn reserve(&self, actor: &mut Actor, n: u64) -> Checked<bool> {
        actor.ops += 1;
        let mut answer = Err(Exhausted { available: 0 });
        let take = || {
            answer = self.budget.try_reserve(n);
            if answer.is_ok() { n as i64 } else { 0 }
        };
        let (known, _) = self.around(|| self.books.take(actor.slot, n as i64, take));
        let reserve = match answer {
            Ok(reserve) => reserve,
            Err(Exhausted { available }) => {
                return known.check_refused(n, available).map(|()| false);
            }
        };
        known.check_granted(n)?;
        let lease = reserve.lease(n / 2);
        holds("half of what was set aside is there", lease.is_ok())?;
        equal("the other half", (n - n / 2) as i64, reserve.available() as i64)?;
        holds("more is not", reserve.lease(n + 1 - n / 2).is_err())?;
        drop(lease);
        self.books.add(actor.slot, Amounts::of([-(n as i64)]), || drop(reserve));
        Ok(true)
    }

    /// Releases up to `most` units of the hand in a slot. How many there were. For handlers too.
    pub(super) fn release(&self, actor: &mut Actor, whose: usize, most: u64) -> u64 {
        let less = |held: u64| Some(held - held.min(most));
        // It never fails.
        let held = self.hands[whose].fetch_update(SeqCst, SeqCst, less).unwrap_or(0);
        let n = held.min(most);
        if n > 0 {
            actor.ops += 1;
            let amounts = Amounts::of([-(n as i64)]);
            self.books.add(actor.slot, amounts, || self.budget.release(n));
        }
        n
    }

    /// What the worker in a slot holds, and others may release.
    pub(super) fn held(&self, slot: usize) -> u64 {
        self.hands[slot].load(SeqCst)
    }

    /// Anybody's.
    pub(super) fn any_hand(&self, actor: &mut Actor) -> usize {
        actor.random.usize(..self.hands.len())
    }

    pub(super) fn check_free(&self) -> Checked {
        let (known, available) = self.around(|| self.budget.available());
        known.check_free(available)
    }

    pub(super) fn check_held(&self) -> Checked<u64> {
        let (known, acquired) = self.around(|| self.budget.acquired());
        known.check_held(acquired).map(|()| acquired)
    }

    /// Sets another limit, unless somebody else does so right now.
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
        equal("the limit that was set", limit, found as i64)
    }

    /// What a child finds, and how it goes on. What its parent's threads held stays held.
    pub(super) fn child(&self, actor: &mut Actor) -> Checked {
        let held = self.check_held()?;
        within("the limit in a child", self.limit.range, self.budget.limit() as i64)?;
        self.check_alone(held)?;
        // Loose, with credit in a lane.
        self.budget.set_limit(held + (1 << 20));
        for _ in 0..700 {
            self.budget.release(self.budget.try_acquire_up_to(actor.random.u64(1..64)));
        }
        let released = self.hands[self.any_hand(actor)].swap(0, SeqCst);
        self.budget.release(released);
        self.check_alone(held - released)
    }

    /// What must hold when nobody else does anything, and `held` units are held.
    fn check_alone(&self, held: u64) -> Checked {
        let budget = &self.budget;
        let free = budget.limit().saturating_sub(held);
        let refused = |what, answer| holds(what, answer == Err(Exhausted { available: free }));
        equal("what is held", held as i64, budget.acquired() as i64)?;
        equal("what is free", free as i64, budget.available() as i64)?;
        refused("a refusal is right", budget.try_acquire(free + 1))?;
        let short = Duration::from_micros(50);
        refused("a wait is in vain", budget.acquire_timeout(free + 1, short))?;
        equal("what can be taken", free as i64, budget.try_acquire_up_to(free + 1) as i64)?;
        equal("what is left then", 0, budget.available() as i64)?;
        budget.release(free);
        equal("what is held again", held as i64, budget.acquired() as i64)
    }

    pub(super) fn account(&mut self) -> Checked {
        let held = self.books.settled();
        // Relaxed: the workers have ended.
        let in_hands: u64 = self.hands.iter().map(|hand| hand.load(Relaxed)).sum();
        equal("what is in hands", held, in_hands as i64)?;
        equal("the last limit", *self.limit.now.get_mut(), self.budget.limit() as i64)?;
        self.check_alone(in_hands)?;
        self.hands.iter().for_each(|hand| self.budget.release(hand.load(Relaxed)));
        self.check_alone(0)
    }
}

/// Splits a lease and merges it again, and releases nothing.
fn turn_over(mut lease: Lease<'_>) -> u64 {
    let part = lease.split(lease.units() / 3);
    let parts = part.map(|mut part| (part.split(1), part));
    if let Some((first, second)) = parts {
        lease.merge(second);
        first.into_iter().for_each(|first| lease.merge(first));
    }
    lease.forget()
}

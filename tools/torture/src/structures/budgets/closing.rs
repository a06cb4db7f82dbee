//! Budgets that are closed while threads and tasks wait for units, hold them, and pass them on.
//!
//! A closed budget is replaced by a new one. The last user of a budget checks that all units are
//! back. No thread waits while it holds units of its own, and the lease that threads pass on leaves
//! enough for each request. So a wait without a deadline ends.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use thiscpu::{Budget, OwnedLease, TryAcquireError};

use super::{Actor, Structure};
use crate::violation::{Checked, equal, holds, within};

/// The possible limits: often reached, and never reached.
const LIMITS: [u64; 2] = [64, 1 << 20];
/// The most units of one request.
const REQUEST_MAX: u64 = 32;
/// The most units of the lease that threads pass on.
const PASSED_MAX: u64 = 8;

/// A budget until it is closed and its last unit is back.
struct Epoch {
    budget: Arc<Budget>,
    /// At most the units that are held.
    ///
    /// They are added after an acquire, and subtracted before a release.
    held: AtomicI64,
    /// Whether `close` has begun, and whether one has ended.
    ///
    /// SeqCst, for simplicity, as for `held`.
    is_closing: AtomicBool,
    is_closed: AtomicBool,
    /// A lease that one thread has acquired and another one takes over.
    passed: Mutex<Option<OwnedLease>>,
}

pub(in super::super) struct Closing {
    current: Mutex<Arc<Epoch>>,
}

impl Epoch {
    fn new(limit: u64) -> Epoch {
        Epoch {
            budget: Arc::new(Budget::new(limit)),
            held: AtomicI64::new(0),
            is_closing: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            passed: Mutex::new(None),
        }
    }

    fn close(&self) -> Checked {
        self.is_closing.store(true, SeqCst);
        self.budget.close();
        self.is_closed.store(true, SeqCst);
        holds("a closed budget says so", self.budget.is_closed())?;
        let refused = self.budget.try_acquire_owned(1).err();
        holds("a closed budget refuses", refused == Some(TryAcquireError::Closed))
    }

    /// Acquires units in one of several ways, and checks the answer.
    fn acquire(&self, actor: &mut Actor) -> Checked<Option<OwnedLease>> {
        actor.ops += 1;
        let n = actor.random.u64(1..=REQUEST_MAX);
        let was_closed = self.is_closed.load(SeqCst);
        let answer = self.ask(actor, n);
        match answer {
            Ok(lease) => {
                holds("a closed budget grants nothing", !was_closed)?;
                equal("the units of a lease", n as i64, lease.units() as i64)?;
                let held = self.held.fetch_add(n as i64, SeqCst) + n as i64;
                within("held units", (1, self.budget.limit() as i64), held)?;
                Ok(Some(lease))
            }
            Err(Some(TryAcquireError::Closed)) => {
                holds("an open budget is not closed", self.is_closing.load(SeqCst))?;
                Ok(None)
            }
            Err(Some(TryAcquireError::Exhausted { available })) => {
                within("available units at a refusal", (0, n as i64 - 1), available as i64)?;
                holds("a closed budget is not exhausted", !was_closed)?;
                Ok(None)
            }
            Err(None) => Ok(None),
        }
    }

    /// Asks for `n` units; the error is `None` if the request was canceled.
    fn ask(&self, actor: &mut Actor, n: u64) -> Result<OwnedLease, Option<TryAcquireError>> {
        let budget = &self.budget;
        match actor.random.u8(..8) {
            0..3 => budget.try_acquire_owned(n).map_err(Some),
            3 => budget.acquire_owned(n).wait().map_err(|closed| Some(closed.into())),
            4 => {
                // A time-out reports what was available then, which may be enough by chance.
                let answer = budget.acquire_owned(n).wait_timeout(Duration::from_micros(50));
                answer.map_err(|error| Some(error).filter(|&it| it == TryAcquireError::Closed))
            }
            _ => {
                let mut future = pin!(budget.acquire_owned(n));
                for _ in 0..actor.random.u8(..4) {
                    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                        Poll::Ready(answer) => return answer.map_err(|closed| Some(closed.into())),
                        Poll::Pending => std::thread::yield_now(),
                    }
                }
                Err(None)
            }
        }
    }

    /// Gives units back: dropped, split and merged, or forgotten and released by hand.
    fn give_back(&self, actor: &mut Actor, mut lease: OwnedLease) -> Checked {
        actor.ops += 1;
        let n = lease.units();
        self.held.fetch_sub(n as i64, SeqCst);
        match actor.random.u8(..4) {
            0 => drop(lease),
            1 => {
                let part = lease.split(n / 2);
                equal("the units left by a split", (n - n / 2) as i64, lease.units() as i64)?;
                holds("more than a lease holds is not split off", lease.split(n + 1).is_none())?;
                part.into_iter().for_each(|part| lease.merge(part));
                equal("the units after a merge", n as i64, lease.units() as i64)?;
            }
            2 => drop((lease.split(1), lease)),
            _ => {
                let budget = Arc::clone(lease.budget());
                budget.release(lease.forget());
            }
        }
        Ok(())
    }

    /// Leaves a part of a lease to other threads, and gives back what one of them has left.
    fn pass_on(&self, actor: &mut Actor, lease: &mut OwnedLease) -> Checked {
        let n = actor.random.u64(1..=PASSED_MAX).min(lease.units());
        let part = lease.split(n);
        let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        let other = std::mem::replace(&mut *passed, part);
        drop(passed);
        other.map_or(Ok(()), |other| self.give_back(actor, other))
    }

    fn verify(self) -> Checked {
        let passed = self.passed.into_inner().unwrap_or_else(PoisonError::into_inner);
        let units = passed.map_or(0, |lease| lease.units());
        equal("units held at the end", units as i64, self.held.into_inner())?;
        let budget = self.budget;
        equal("acquired units at the end", 0, budget.acquired() as i64)?;
        equal("waiters at the end", 0, budget.waiters() as i64)?;
        equal("units released too much", 0, budget.over_released() as i64)?;
        equal("references at the end", 1, Arc::strong_count(&budget) as i64)?;
        holds("only `close` closes", budget.is_closed() == self.is_closed.into_inner())
    }
}

/// Ends one use of an epoch. The last user checks it.
fn leave(epoch: Arc<Epoch>) -> Checked {
    Arc::into_inner(epoch).map_or(Ok(()), Epoch::verify)
}

impl Closing {
    pub(in super::super) fn new() -> Self {
        Closing { current: Mutex::new(Arc::new(Epoch::new(LIMITS[0]))) }
    }

    fn close_and_replace(&self, actor: &mut Actor) -> Checked {
        let new = Arc::new(Epoch::new(LIMITS[actor.random.usize(..LIMITS.len())]));
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *current, new);
        drop(current);
        actor.ops += 1;
        old.close()?;
        leave(old)
    }
}

impl Structure for Closing {
    fn step(&self, actor: &mut Actor) -> Checked {
        if actor.random.u8(..16) == 0 {
            return self.close_and_replace(actor);
        }
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let epoch = Arc::clone(&current);
        drop(current);
        // Enough, sometimes, for a budget to lend units to lanes.
        for _ in 0..1 << actor.random.u8(..8) {
            if let Some(mut lease) = epoch.acquire(actor)? {
                if actor.random.u8(..8) == 0 {
                    epoch.pass_on(actor, &mut lease)?;
                }
                epoch.give_back(actor, lease)?;
            }
        }
        leave(epoch)
    }

    /// Closes the budget that the parent has left in any state.
    ///
    /// Skipped if a thread that does not exist here holds the lock.
    fn check_in_child(&self, actor: &mut Actor) -> Checked {
        let epoch = match self.current.try_lock() {
            Ok(current) => Arc::clone(&current),
            Err(TryLockError::Poisoned(poisoned)) => Arc::clone(&poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        actor.ops += 1;
        equal("waiters in a child", 0, epoch.budget.waiters() as i64)?;
        epoch.close()?;
        let held = epoch.budget.acquired() as i64;
        within("held units in a child", (0, epoch.budget.limit() as i64), held)?;
        // Its last user, if any, is in the parent.
        std::mem::forget(epoch);
        Ok(())
    }

    fn verify(&mut self) -> Checked {
        let current = self.current.get_mut().unwrap_or_else(PoisonError::into_inner);
        let last = std::mem::replace(current, Arc::new(Epoch::new(LIMITS[0])));
        equal("users of the last budget", 1, Arc::strong_count(&last) as i64)?;
        last.close()?;
        leave(last)
    }
}

//! Waiting for units of a shared budget, in a thread.
//!
//! A waiter sleeps on a word in the segment. The thread that grants its units wakes it. The waiter
//! also looks from time to time, because the process that should wake it may have been killed.

use std::time::{Duration, Instant};

use super::SharedBudget;
use super::error::SharedAcquireError;
use crate::segment::budget::{Participant, Sleeper, Wait, Waiting};
use crate::segment::member::tasks::LOOK_EVERY;
use crate::sys::atomic::{AtomicU32, Ordering::Acquire};
use crate::sys::errno;
use crate::sys::futex::{self, Scope};

impl SharedBudget {
    /// Acquires `n` units; blocks until they are available, or the budget is closed.
    ///
    /// First come, first served, over all processes: while anybody waits, released units are
    /// promised to the first waiter, no matter how many it needs. A request above the limit blocks
    /// until the limit is raised, and blocks everyone queued behind it. If a process is killed
    /// between a release and the wake of a waiter, the wake comes up to 100 ms late.
    ///
    /// A segment has eight waiters for each of its
    /// [`participants`](crate::SegmentOptions::participants). If all of them are in use, further
    /// ones try again every 100 ms, in any order.
    ///
    /// Costs what [`try_acquire`](SharedBudget::try_acquire) costs if units are available and
    /// nobody waits. The wait is no cancellation point. Must not be called from a signal handler.
    ///
    /// # Errors
    ///
    /// [`Closed`](SharedAcquireError::Closed) if the budget is [closed](SharedBudget::close), now
    /// or while the call waits; [`NoSlot`](SharedAcquireError::NoSlot) if this is a child that can
    /// take no slot; [`Lost`](SharedAcquireError::Lost) if somebody has shortened the segment's
    /// file.
    pub fn acquire(&self, n: u64) -> Result<(), SharedAcquireError> {
        self.wait(n, || None)
    }

    /// Acquires `n` units; blocks until they are available, for at most `timeout`.
    ///
    /// Otherwise like [`acquire`](SharedBudget::acquire).
    ///
    /// # Errors
    ///
    /// [`Exhausted`](SharedAcquireError::Exhausted) if the time is over, and those of `acquire`.
    /// Then nothing is acquired.
    pub fn acquire_timeout(&self, n: u64, timeout: Duration) -> Result<(), SharedAcquireError> {
        self.wait(n, || Instant::now().checked_add(timeout))
    }

    /// Acquires `n` units; blocks until they are available, until `deadline` at most.
    ///
    /// Otherwise like [`acquire`](SharedBudget::acquire).
    ///
    /// # Errors
    ///
    /// Those of [`acquire_timeout`](SharedBudget::acquire_timeout).
    pub fn acquire_deadline(&self, n: u64, deadline: Instant) -> Result<(), SharedAcquireError> {
        self.wait(n, || Some(deadline))
    }

    fn wait(
        &self,
        n: u64,
        deadline: impl FnOnce() -> Option<Instant>,
    ) -> Result<(), SharedAcquireError> {
        match self.try_acquire(n) {
            Err(SharedAcquireError::Exhausted { .. }) => self.wait_in_queue(n, deadline()),
            result => result,
        }
    }

    #[cold]
    fn wait_in_queue(&self, n: u64, deadline: Option<Instant>) -> Result<(), SharedAcquireError> {
        let _errno = errno::save();
        let left = || deadline.map(|it| it.saturating_duration_since(Instant::now()));
        loop {
            if self.member.mapping.is_lost() {
                return Err(SharedAcquireError::Lost);
            }
            let me = self.joined()?;
            match self.enqueue(me, n, Sleeper::Thread) {
                Wait::Granted => return Ok(()),
                Wait::Closed => return Err(SharedAcquireError::Closed),
                Wait::Waiting(waiting) => match self.sleep_in_queue(me, waiting, left) {
                    Wait::Granted => return Ok(()),
                    Wait::Closed => return Err(SharedAcquireError::Closed),
                    // The last word: units may have come back at the end of the wait.
                    Wait::Left => return self.try_acquire(n),
                    Wait::Full | Wait::Waiting(_) => {}
                },
                Wait::Full | Wait::Left => {
                    if left().is_some_and(|left| left.is_zero()) {
                        return self.try_acquire(n);
                    }
                    // Not `thread::sleep`, which is a cancellation point.
                    let (nobody, at_most) = (AtomicU32::new(0), left().unwrap_or(LOOK_EVERY));
                    futex::wait(&nobody, 0, Some(at_most.min(LOOK_EVERY)), Scope::Process);
                }
            }
        }
    }

    pub(super) fn enqueue(&self, me: Participant, n: u64, sleeper: Sleeper) -> Wait {
        self.parts().enqueue(me, self.lane(), n, sleeper, &*self.member)
    }

    /// Looks whether a wait is over, and for all that it may wait for.
    pub(super) fn look(&self, me: Participant, waiting: Waiting) -> Wait {
        self.member.keep_lock_at_times();
        self.parts().poll(waiting, me, &*self.member)
    }

    /// Leaves the queue, unless the wait is over.
    pub(super) fn leave_queue(&self, waiting: Waiting) -> Wait {
        self.parts().cancel(waiting, &*self.member)
    }

    /// Sleeps until a wait is over, or no time is left.
    fn sleep_in_queue(
        &self,
        me: Participant,
        mut waiting: Waiting,
        left: impl Fn() -> Option<Duration>,
    ) -> Wait {
        loop {
            let parts = self.parts();
            let Some(waiter) = parts.waiter(&waiting) else { return Wait::Full };
            // Acquire: pairs with the addition of a wake; the look comes after it.
            let seen = waiter.wakes().load(Acquire);
            waiting = match self.look(me, waiting) {
                // In memory of this process alone, nobody grants the units.
                Wait::Waiting(_) if self.member.mapping.is_lost() => return Wait::Full,
                Wait::Waiting(waiting) => waiting,
                over => return over,
            };
            let left = left();
            if left.is_some_and(|left| left.is_zero()) {
                return self.leave_queue(waiting);
            }
            let at_most = left.unwrap_or(LOOK_EVERY).min(LOOK_EVERY);
            futex::wait(waiter.wakes(), seen, Some(at_most), Scope::Shared);
        }
    }
}

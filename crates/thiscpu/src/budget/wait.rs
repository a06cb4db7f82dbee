//! Waiting for units, first come, first served.
//!
//! While there are waiters the budget is in shared mode, and its pool is marked as queued: its
//! units are promised to the first waiter. A waiter enters shared mode before its last look at the
//! pool, so no release can be in a lane that it does not see. [`super::lock`] serves the queue. A
//! wait ends with units, with the close of the budget, or because the waiter leaves the queue; the
//! lock decides which comes first.

use std::task::Waker;
use std::time::Instant;

use super::core::Budget;
use super::error::{AcquireError, TryAcquireError};
use super::pool::PoolState;
use super::queue::{State, Waiter};
use crate::sys::{errno, waker};

/// Creates a waiter for `n` units, or for twice the largest limit, which is never granted.
pub(super) fn waiter_for(n: u64) -> Waiter {
    Waiter::new(n.min(2 * Budget::LIMIT_MAX) as i64)
}

impl Budget {
    /// Acquires `n` units; waits until `deadline()`, which is called only before a wait.
    #[inline]
    pub(super) fn wait(
        &self,
        n: u64,
        deadline: impl FnOnce() -> Option<Instant>,
    ) -> Result<(), TryAcquireError> {
        match self.try_acquire(n) {
            Err(TryAcquireError::Exhausted { .. }) => self.wait_in_queue(n, deadline()),
            result => result,
        }
    }

    #[cold]
    fn wait_in_queue(&self, n: u64, deadline: Option<Instant>) -> Result<(), TryAcquireError> {
        let _errno = errno::save();
        let waiter = waiter_for(n);
        // SAFETY: the waiter is new, and stays on this stack until its wait has ended or it was
        // canceled.
        if unsafe { self.enqueue(&waiter, None) }? {
            return Ok(());
        }
        loop {
            match waiter.state() {
                State::Waiting | State::Nudged => {}
                State::Granted => return Ok(()),
                State::Closed => return Err(TryAcquireError::Closed),
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return self.leave_queue(&waiter);
            }
            waiter.sleep(left);
        }
    }

    /// Acquires the waiter's units and returns `true`, or queues it and returns `false`.
    ///
    /// # Errors
    ///
    /// If the budget is closed. Then the waiter is in no queue.
    ///
    /// # Safety
    ///
    /// The waiter is in no queue of this process, and stays where it is until its wait has ended or
    /// it was canceled.
    pub(super) unsafe fn enqueue(
        &self,
        waiter: &Waiter,
        task: Option<Waker>,
    ) -> Result<bool, AcquireError> {
        let guard = self.lock();
        self.to_shared_mode(&guard);
        // SAFETY: the caller guarantees that the waiter is in no queue of this process.
        let old = unsafe { waiter.prepare(task) };
        let is_acquired = loop {
            let now = self.pool.load();
            if now.is_closed() {
                break Err(AcquireError(()));
            }
            let is_enough = now.is_open() && now.units() >= waiter.units;
            let new = if is_enough { now.with_units(-waiter.units) } else { now.shared(true) };
            if self.pool.exchange(now, new) {
                break Ok(is_enough);
            }
        };
        if is_acquired == Ok(false) {
            // SAFETY: the lock is held. The caller guarantees that the waiter is in no queue and
            // stays where it is until its wait has ended or it was canceled, which remove it.
            unsafe { self.queue.push(waiter) };
        }
        self.unlock(guard);
        waker::drop_caught(old);
        is_acquired
    }

    /// Ends a wait. Returns `Ok` if the units had been granted, which the caller now holds.
    pub(super) fn leave_queue(&self, waiter: &Waiter) -> Result<(), TryAcquireError> {
        let guard = self.lock();
        let mut state = waiter.state();
        // While others wait nothing is available.
        let mut available = 0;
        if state == State::Waiting && waiter.is_of_this_process() {
            // SAFETY: the lock is held. A waiter that was queued in this process, and whose wait
            // has not ended, is still in the queue.
            unsafe { self.queue.remove(waiter) };
            if self.queue.first().is_null() {
                // A thread that released meanwhile left its units to the lock holder. They may be
                // enough, and then this waiter must not be refused.
                let is_enough = |now: PoolState| now.is_queued() && now.units() >= waiter.units;
                let before = self.pool.update(|now| match is_enough(now) {
                    true => now.with_units(-waiter.units).shared(false),
                    false => now.shared(false),
                });
                if is_enough(before) {
                    state = State::Granted;
                }
                available = before.shared(false).available();
            }
        }
        if state == State::Waiting && self.pool.load().is_closed() {
            state = State::Closed;
        }
        self.unlock(guard);
        match state {
            State::Granted => Ok(()),
            State::Closed => Err(TryAcquireError::Closed),
            State::Waiting | State::Nudged => Err(TryAcquireError::Exhausted { available }),
        }
    }
}

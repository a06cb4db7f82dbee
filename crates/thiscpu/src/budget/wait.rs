//! Waiting for units, first come, first served.
//!
//! While there are waiters the budget is in shared mode, and its pool is marked as queued: its
//! units are promised to the first waiter. A waiter enters shared mode before its last look at the
//! pool, so no release can be in a lane that it does not see. [`super::lock`] serves the queue.

use std::fmt;
use std::future::Future;
use std::marker::PhantomPinned;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::core::{Budget, Exhausted};
use super::lease::Lease;
use super::queue::Waiter;
use crate::sys::errno;

/// Creates a waiter for `n` units, or for twice the largest limit, which is never granted.
fn waiter_for(n: u64) -> Waiter {
    Waiter::new(n.min(2 * Budget::LIMIT_MAX) as i64)
}

impl Budget {
    pub(super) fn wait(&self, n: u64, timeout: Option<Duration>) -> Result<(), Exhausted> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        if self.try_acquire(n).is_ok() {
            return Ok(());
        }
        let _errno = errno::save();
        let waiter = waiter_for(n);
        // SAFETY: the waiter is new, and stays on this stack until it was granted or canceled.
        if unsafe { self.enqueue(&waiter, None) } {
            return Ok(());
        }
        while !waiter.is_granted() {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return self.leave_queue(&waiter);
            }
            waiter.sleep(left);
        }
        Ok(())
    }

    /// Acquires the waiter's units and returns `true`, or queues it and returns `false`.
    ///
    /// # Safety
    ///
    /// The waiter is in no queue of this process, and stays where it is until it was granted or
    /// canceled.
    unsafe fn enqueue(&self, waiter: &Waiter, task: Option<Waker>) -> bool {
        let guard = self.lock();
        let excess = self.to_shared_mode(&guard);
        if excess > 0 {
            self.unlock(guard);
            self.panic_over_released(excess);
        }
        // SAFETY: the caller guarantees that the waiter is in no queue of this process.
        unsafe { waiter.prepare(task) };
        let is_acquired = loop {
            let now = self.pool.load();
            let is_enough = !now.is_queued() && now.units() >= waiter.units;
            let new = if is_enough { now.with_units(-waiter.units) } else { now.shared(true) };
            if self.pool.exchange(now, new) {
                break is_enough;
            }
        };
        if !is_acquired {
            // SAFETY: the lock is held. The caller guarantees that the waiter is in no queue and
            // stays where it is until it was granted or canceled, which remove it.
            unsafe { self.queue.push(waiter) };
        }
        self.unlock(guard);
        is_acquired
    }

    /// Ends a wait. Returns `Ok` if the units had been granted, which the caller now holds.
    fn leave_queue(&self, waiter: &Waiter) -> Result<(), Exhausted> {
        let guard = self.lock();
        let mut granted = waiter.is_granted();
        // While others wait nothing is available.
        let mut available = 0;
        if !granted && waiter.is_of_this_process() {
            // SAFETY: the lock is held. A waiter that was queued in this process and was not
            // granted is still in the queue.
            unsafe { self.queue.remove(waiter) };
            if self.queue.first().is_null() {
                // A thread that released meanwhile left its units to the lock holder. They may be
                // enough, and then this waiter must not be refused.
                let before = self.pool.update(|now| match now.units() >= waiter.units {
                    true => now.with_units(-waiter.units).shared(false),
                    false => now.shared(false),
                });
                granted = before.units() >= waiter.units;
                available = before.shared(false).available();
            }
        }
        self.unlock(guard);
        if granted { Ok(()) } else { Err(Exhausted { available }) }
    }
}

/// A future that acquires units; returned by [`Budget::acquire_async`].
#[must_use = "futures do nothing unless they are awaited"]
pub struct Acquire<'a> {
    budget: &'a Budget,
    n: u64,
    waiter: Waiter,
    /// Whether the waiter was queued and its units were not handed out yet.
    is_queued: bool,
    _pinned: PhantomPinned,
}

// SAFETY: once the waiter is queued, its links and waker are accessed under the budget's lock, and
// its state is atomic. Before that, only the owner of the future accesses it.
unsafe impl Send for Acquire<'_> {}
// SAFETY: a shared reference to the future gives access to nothing; see its `Debug`.
unsafe impl Sync for Acquire<'_> {}

impl<'a> Acquire<'a> {
    pub(super) fn new(budget: &'a Budget, n: u64) -> Acquire<'a> {
        Acquire { budget, n, waiter: waiter_for(n), is_queued: false, _pinned: PhantomPinned }
    }

    /// Returns whether the units are acquired; if not, `task` is woken when they are.
    ///
    /// The future is pinned: it stays where it is until it is dropped.
    fn is_ready(&mut self, task: &Waker) -> bool {
        if self.is_queued && self.waiter.is_granted() {
            return true;
        }
        if self.is_queued && self.waiter.is_of_this_process() {
            let task = Some(task.clone());
            let guard = self.budget.lock();
            let granted = self.waiter.is_granted();
            // SAFETY: the budget's lock is held.
            let old = unsafe { self.waiter.replace_task(task) };
            self.budget.unlock(guard);
            // Dropping a waker may run a task's own code, so it happens without the lock.
            drop(old);
            return granted;
        }
        if self.budget.try_acquire(self.n).is_ok() {
            return true;
        }
        // SAFETY: the waiter is in no queue of this process. It is pinned with the future, whose
        // drop cancels it.
        let is_acquired = unsafe { self.budget.enqueue(&self.waiter, Some(task.clone())) };
        self.is_queued = !is_acquired;
        is_acquired
    }
}

impl<'a> Future for Acquire<'a> {
    type Output = Lease<'a>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Lease<'a>> {
        // SAFETY: `is_ready` and the rest of this function move nothing out of the future.
        let this = unsafe { self.get_unchecked_mut() };
        if !this.is_ready(context.waker()) {
            return Poll::Pending;
        }
        this.is_queued = false;
        Poll::Ready(Lease::new(this.budget, this.n))
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        if self.is_queued && self.budget.leave_queue(&self.waiter).is_ok() {
            self.budget.release(self.n);
        }
    }
}

impl fmt::Debug for Acquire<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").field("n", &self.n).finish_non_exhaustive()
    }
}

//! The budget's lock, and the duties of its holder: to recover after a fork, and to serve waiters.
//!
//! A thread that releases to a queued pool serves the queue, and one that finds units above the
//! limit discards them. If another thread holds the lock, that one does so after it has unlocked.
//! So a release never waits, and no release is overlooked.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{mem, ptr};

use super::core::Budget;
use super::pool::PoolState;
use super::queue::{State, Wakeup};
use crate::sys::Host;
use crate::sys::atomic::{
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence as memory_fence,
};
use crate::sys::errno;
use crate::sys::lock::Guard;
use crate::sys::machine::Machine as _;
use crate::sys::startup;

/// The panic of a task's waker.
pub(super) type WakerPanic = Box<dyn Any + Send>;

impl Budget {
    /// Acquires the right to change the gate, the limit and the queue. Waits for its holder.
    pub(super) fn lock(&self) -> Guard<'_> {
        startup::tier_or_panic();
        let guard = self.lock.lock();
        self.recover(&guard);
        guard
    }

    /// Acquires the lock if nobody holds it. Never waits.
    pub(super) fn try_lock(&self) -> Option<Guard<'_>> {
        let guard = self.lock.try_lock()?;
        self.recover(&guard);
        Some(guard)
    }

    /// Releases the lock, and finishes what others left to its holder.
    ///
    /// A waker that panics may be that of any task. So the panic ends here: the caller may own
    /// units, or a waiter in the queue.
    pub(super) fn unlock(&self, guard: Guard<'_>) {
        // Forgotten, because a payload may panic when it is dropped.
        mem::forget(self.unlock_and_serve(guard));
    }

    /// Does what `unlock` does, and returns the panic of a waker.
    pub(super) fn unlock_and_serve(&self, guard: Guard<'_>) -> Option<WakerPanic> {
        drop(guard);
        // SeqCst: pairs with the fences in `serve_queue`. If a releaser found the lock held, this
        // load sees the units that it added.
        memory_fence(SeqCst);
        if self.needs_service(self.pool.load()) {
            return self.serve();
        }
        self.report_over_release();
        None
    }

    /// Returns whether a pool with the state `now` needs a holder of the lock.
    pub(super) fn needs_service(&self, now: PoolState) -> bool {
        let has_closed_waiters = now.is_closed() && self.queue.len() > 0;
        now.is_queued() || has_closed_waiters || self.may_have_excess(now)
    }

    /// Returns whether this process has discarded the waiters of its parent.
    pub(super) fn is_recovered(&self) -> bool {
        // Acquire: pairs with the Release in `recover`.
        self.recovered.load(Acquire) == Host::generation()
    }

    /// Recovers after a fork, unless another thread has done so.
    pub(super) fn recover_after_fork(&self) {
        let _errno = errno::save();
        // `lock` recovers. `unlock` also serves waiters whose releaser found the lock held.
        self.unlock(self.lock());
    }

    /// Recovers after a fork. Each lock holder calls this; only a child's first does anything.
    ///
    /// Discards the parent's waiters, whose threads were not copied. Sets the limit to the one that
    /// the pool's units belong to, if the fork interrupted a change of it.
    fn recover(&self, _guard: &Guard<'_>) {
        if self.is_recovered() {
            return;
        }
        if let Some(limit) = self.pool.unfinished_limit() {
            self.limit.store(limit, Relaxed);
            self.pool.end_limit_change(0);
        }
        self.queue.clear();
        if self.pool.load().is_queued() {
            self.pool.update(|now| now.shared(false));
        }
        // Release: pairs with the Acquire in `is_recovered`; the queue is empty for those that see
        // it.
        self.recovered.store(Host::generation(), Release);
    }

    /// Discards units above the limit, then ends waits in order.
    ///
    /// Waiters get units until the first needs more than there are, or learn that the budget is
    /// closed. Waits for nothing but standard error, if this thread discards the budget's first
    /// excess. Returns the first panic of a waker; others are dropped.
    #[cold]
    pub(super) fn serve(&self) -> Option<WakerPanic> {
        let _errno = errno::save();
        let panic = self.serve_queue();
        // Last, because standard error may block.
        self.report_over_release();
        panic
    }

    fn serve_queue(&self) -> Option<WakerPanic> {
        let mut panic = None;
        loop {
            // SeqCst: pairs with the fence in `unlock_and_serve`.
            memory_fence(SeqCst);
            // The holder of the lock loads the pool after it has unlocked.
            let Some(guard) = self.try_lock() else { return panic };
            self.discard_pool_excess(&guard);
            let (wakeup, pool) = self.end_first_wait(&guard);
            drop(guard);
            match wakeup.map(wake) {
                Some(Ok(())) => {}
                Some(Err(payload)) if panic.is_none() => panic = Some(payload),
                // Forgotten, because a payload may panic when it is dropped.
                Some(Err(payload)) => mem::forget(payload),
                None => {
                    // SeqCst: pairs with the fence in another thread's `serve_queue` that found the
                    // lock held.
                    memory_fence(SeqCst);
                    let now = self.pool.load();
                    if now == pool || !self.needs_service(now) {
                        return panic;
                    }
                }
            }
        }
    }

    /// Grants the first waiter its units if the pool has enough; if it is closed, ends the wait.
    ///
    /// Also returns the pool's state, which shows why if no wait has ended.
    fn end_first_wait(&self, _guard: &Guard<'_>) -> (Option<Wakeup>, PoolState) {
        loop {
            let now = self.pool.load();
            // SAFETY: the first pointer is null or a queued waiter. Waiters stay in the queue, and
            // where they are, while the lock is held.
            let Some(first) = (unsafe { self.queue.first().as_ref() }) else { return (None, now) };
            let is_last = first.is_last();
            let end = match () {
                () if now.is_closed() => State::Closed,
                () if now.units() < first.units => return (None, now),
                () if self.pool.exchange(now, now.with_units(-first.units).shared(!is_last)) => {
                    State::Granted
                }
                () => continue,
            };
            // SAFETY: `_guard` proves that the lock is held, and `first` was read under it.
            return (Some(unsafe { self.queue.end_wait(ptr::from_ref(first), end) }), now);
        }
    }
}

/// Wakes a thread or task; returns the panic of a task's waker.
fn wake(wakeup: Wakeup) -> Result<(), WakerPanic> {
    if cfg!(thiscpu_model) {
        // A model ends an execution by panics of its own.
        wakeup.wake();
        return Ok(());
    }
    // Nothing of this budget is accessed by a waker, except by calls of its own.
    catch_unwind(AssertUnwindSafe(|| wakeup.wake()))
}

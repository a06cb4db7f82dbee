//! The budget's lock, and the duties of its holder: to recover after a fork, and to serve waiters.
//!
//! A thread that releases to a queued pool serves the queue. If another thread holds the lock, that
//! one does so after it has unlocked. So a release never waits, and no release is overlooked.

use std::ptr;

use super::core::Budget;
use super::pool::PoolState;
use super::queue::Grant;
use crate::sys::Host;
use crate::sys::atomic::{
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence as memory_fence,
};
use crate::sys::errno;
use crate::sys::lock::Guard;
use crate::sys::machine::Machine as _;
use crate::sys::startup;

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

    /// Releases the lock, and serves waiters to which others released units meanwhile.
    pub(super) fn unlock(&self, guard: Guard<'_>) {
        drop(guard);
        // SeqCst: pairs with the fences in `serve`. If a releaser found the lock held, this load
        // sees the units that it added.
        memory_fence(SeqCst);
        if self.pool.load().is_queued() {
            self.serve();
        }
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

    /// Grants units to waiters in order, until the first needs more than there are. Never waits.
    #[cold]
    pub(super) fn serve(&self) {
        let _errno = errno::save();
        loop {
            // SeqCst: pairs with the fence in `unlock`.
            memory_fence(SeqCst);
            // The holder of the lock loads the pool after it has unlocked.
            let Some(guard) = self.try_lock() else { return };
            let (grant, pool) = self.grant_first(&guard);
            drop(guard);
            match grant {
                Some(grant) => {
                    // A task's waker may panic. Then the drop serves the other waiters.
                    let rest = ServeOnDrop(self);
                    grant.wake();
                    std::mem::forget(rest);
                }
                None => {
                    // SeqCst: pairs with the fence in another `serve` that found the lock held.
                    memory_fence(SeqCst);
                    if self.pool.load() == pool {
                        return;
                    }
                }
            }
        }
    }

    /// Grants the first waiter its units if the pool has enough.
    ///
    /// Also returns the pool's state, which shows why if nobody was granted.
    fn grant_first(&self, _guard: &Guard<'_>) -> (Option<Grant>, PoolState) {
        loop {
            let now = self.pool.load();
            // SAFETY: the first pointer is null or a queued waiter. Waiters stay in the queue, and
            // where they are, while the lock is held.
            let Some(first) = (unsafe { self.queue.first().as_ref() }) else { return (None, now) };
            if now.units() < first.units {
                return (None, now);
            }
            if self.pool.exchange(now, now.with_units(-first.units).shared(!first.is_last())) {
                // SAFETY: `_guard` proves that the lock is held, and `first` was read under it.
                return (Some(unsafe { self.queue.grant(ptr::from_ref(first)) }), now);
            }
        }
    }
}

/// Serves waiters when dropped.
struct ServeOnDrop<'a>(&'a Budget);

impl Drop for ServeOnDrop<'_> {
    fn drop(&mut self) {
        self.0.serve();
    }
}

//! The rate's lock, and the recovery of a forked child.

use super::core::Rate;
use crate::sys::Host;
use crate::sys::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sys::errno;
use crate::sys::lock::Guard;
use crate::sys::machine::Machine as _;
use crate::sys::startup;

impl Rate {
    /// Acquires the right to change the gate, the terms, the queue and windows.
    ///
    /// Waits for its holder.
    pub(super) fn lock(&self) -> Guard<'_> {
        startup::tier_or_panic();
        let guard = self.shared.lock.lock();
        self.recover(&guard);
        guard
    }

    /// Acquires the lock if nobody holds it. Never waits.
    pub(super) fn try_lock(&self) -> Option<Guard<'_>> {
        let guard = self.shared.lock.try_lock()?;
        self.recover(&guard);
        Some(guard)
    }

    /// Returns whether this process has discarded the waiters of its parent.
    pub(super) fn is_recovered(&self) -> bool {
        // Acquire: pairs with the Release in `recover`.
        self.shared.recovered.load(Acquire) == Host::generation()
    }

    /// Recovers after a fork, unless another thread has done so.
    pub(super) fn recover_after_fork(&self) {
        let _errno = errno::save();
        drop(self.lock());
    }

    /// Recovers after a fork. Each lock holder calls this; only a child's first does anything.
    ///
    /// Finishes a loan, and discards the parent's waiters, whose threads were not copied.
    fn recover(&self, _guard: &Guard<'_>) {
        if self.is_recovered() {
            return;
        }
        self.finish_loan();
        self.shared.queue.clear();
        self.loan.queued.store(0, Relaxed);
        loop {
            let (state, _) = self.shared.pool.load(&self.slots);
            if !state.is_queued() || self.shared.pool.exchange(state, state.shared(false)) {
                break;
            }
        }
        // Release: pairs with the Acquire in `is_recovered`; the queue is empty for those that see
        // it.
        self.shared.recovered.store(Host::generation(), Release);
    }
}

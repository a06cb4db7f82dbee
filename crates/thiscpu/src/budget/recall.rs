//! Changes of mode: the recall, which enters shared mode, and the return to per-CPU mode.
//!
//! A recall has four steps:
//!
//! 1. Close the gate, then count the recall.
//! 2. Fence. No section that saw the gate open can commit any more: this holds for sections that
//!    take or give units, and for those that add a batch borrowed earlier to a lane.
//! 3. Add up what was taken from the lanes. The units lent and not taken are available, whether
//!    they are in a lane, or on the way to one with a thread that was stopped or that a fork did
//!    not copy.
//! 4. Add them to the pool and mark it as shared, by one exchange. From that instant the pool holds
//!    everything that is available.
//!
//! Other threads use the pool meanwhile; only a caller about to be refused waits for the lock. The
//! content of lanes is meaningless in shared mode, so leaving it clears them first.

use super::core::{Budget, percpu_threshold};
use super::credit::{self, Credit};
use super::pool::PoolState;
use crate::gate::ITEM_ALIGN;
use crate::lanes::{region, table};
use crate::sys::Host;
use crate::sys::atomic::Ordering::{Relaxed, Release};
use crate::sys::lock::Guard;
use crate::sys::machine::Machine as _;
use crate::sys::startup;
use crate::sys::{errno, fence};
use crate::tier::Tier;

/// How often a switch to per-CPU mode is tried while other threads change the pool.
const PERCPU_ATTEMPTS: u32 = 8;

impl Budget {
    /// Returns the number of recalls that have begun.
    pub(crate) fn recalls(&self) -> u64 {
        // Relaxed: for tests and statistics.
        self.recalls.load(Relaxed)
    }

    /// Enters shared mode.
    pub(super) fn recall(&self) {
        self.in_shared_mode(false, || ());
    }

    /// Enters shared mode, then calls `act` under the lock.
    ///
    /// After that returns to per-CPU mode if the budget was in it and `should_return` is set.
    fn in_shared_mode<R>(&self, should_return: bool, act: impl FnOnce() -> R) -> R {
        let _errno = errno::save();
        let guard = self.lock();
        let was_percpu = !self.pool.load().is_shared();
        self.to_shared_mode(&guard);
        let result = act();
        if was_percpu && should_return {
            self.to_percpu_mode(&guard);
        }
        self.unlock(guard);
        result
    }

    /// Enters shared mode, or stays in it; the caller holds the lock.
    ///
    /// Discards and counts the units above the limit, which were released but not held.
    pub(super) fn to_shared_mode(&self, guard: &Guard<'_>) {
        if self.pool.load().is_shared() {
            return self.discard_pool_excess(guard);
        }
        let began = Host::time();
        self.recall_credit();
        self.pool.calls.note_recall(began, Host::time());
    }

    /// Runs the four steps of a recall.
    fn recall_credit(&self) {
        let gate = self.gate.load();
        self.gate.set(gate.closed());
        // Relaxed: the count changes under the lock only. Release: pairs with the Acquire in
        // `borrow`, so a borrower that loads this count finds the gate closed, or opened after this
        // recall. The fence comes after it, so no section finds the old count later.
        self.recalls.store(self.recalls.load(Relaxed).wrapping_add(1), Release);
        let taken = gate.item().map_or(0, |item| {
            fence::fence();
            // Read after the fence: a lane is counted before any section can use it. So this number
            // covers each section that has committed.
            (1..=table::in_use()).map(|lane| Credit::of(item, lane).taken()).sum()
        });
        let limit = self.limit.load(Relaxed);
        // `min` discards an excess, which is counted below.
        let (units, lent) = self.pool.collect_lent(|units, lent| (units + lent - taken).min(limit));
        self.pool.calls.reset();
        let excess = units + lent - taken - limit;
        if excess > 0 {
            self.count_over_released(excess as u64);
        }
    }

    /// Enters per-CPU mode if there are plenty of units.
    ///
    /// Does nothing if another thread holds the lock, or if lanes cannot be allocated.
    #[cold]
    pub(super) fn try_percpu_mode(&self) {
        let _errno = errno::save();
        if let Some(guard) = self.try_lock() {
            self.to_percpu_mode(&guard);
            self.unlock(guard);
        }
    }

    /// Enters per-CPU mode if units are plentiful and nobody waits; the caller holds the lock.
    fn to_percpu_mode(&self, _guard: &Guard<'_>) {
        // Without sections a lane is not faster than the pool.
        if startup::chosen() == Some(Tier::Atomic) {
            self.percpu_threshold.store(i64::MAX, Relaxed);
            return;
        }
        let gate = self.gate.load();
        let Some(item) = gate.item().or_else(alloc_lanes) else {
            // So that not each call asks for memory.
            self.pool.calls.reset();
            return;
        };
        if !gate.is_closed() {
            return;
        }
        let lanes = table::in_use();
        (1..=lanes).for_each(|lane| Credit::of(item, lane).clear());
        let threshold = percpu_threshold(self.limit.load(Relaxed), lanes);
        // Relaxed: a hint for `note_call`.
        self.percpu_threshold.store(threshold, Relaxed);
        for _ in 0..PERCPU_ATTEMPTS {
            let now = self.pool.load();
            if !now.is_open() || now.units() < threshold {
                break;
            }
            if self.pool.exchange(now, now.percpu()) {
                self.pool.calls.note_percpu_mode(Host::time());
                self.gate.set(gate.opened(item));
                return;
            }
        }
        // The gate stays closed, but keeps the item for the next attempt.
        self.gate.set(gate.opened(item).closed());
    }

    /// Calls `read` with the limit and a pool that holds all available units, at one instant.
    pub(super) fn with_all_units<R>(&self, read: impl FnOnce(PoolState, i64) -> R) -> R {
        self.in_shared_mode(true, || read(self.pool.load(), self.limit.load(Relaxed)))
    }

    /// Changes the limit at one instant.
    pub(super) fn change_limit(&self, limit: i64) {
        self.in_shared_mode(true, || {
            let old = self.limit.load(Relaxed);
            let (lower, change) = (limit.min(old), limit - old);
            // In this order no thread sees more units in the pool than the limit that it loaded: it
            // would discard units. Between the changes the units are of the lower limit.
            self.pool.begin_limit_change(change.min(0), lower);
            // Release: pairs with the Acquire loads in `release_shared` and
            // `may_have_excess`.
            self.limit.store(limit, Release);
            self.pool.end_limit_change(change.max(0));
            self.percpu_threshold.store(percpu_threshold(limit, table::in_use()), Relaxed);
        });
    }
}

/// Allocates memory in the lanes, unless another thread is changing the regions right now.
fn alloc_lanes() -> Option<usize> {
    region::try_lock()?.allocate_if_possible(credit::BYTES, ITEM_ALIGN)
}

impl Drop for Budget {
    fn drop(&mut self) {
        if let Some(item) = self.gate.load().item() {
            region::free(item, credit::BYTES);
        }
    }
}

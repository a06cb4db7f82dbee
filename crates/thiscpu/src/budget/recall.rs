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

use core::fmt::Arguments;

use super::core::{Budget, countable, percpu_threshold};
use super::credit::{self, Credit};
use super::pool::PoolState;
use crate::gate::ITEM_ALIGN;
use crate::lanes::{region, table};
use crate::sys::atomic::Ordering::{Relaxed, Release};
use crate::sys::lock::Guard;
use crate::sys::panic_reason::PanicReason;
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

    /// Enters shared mode, then calls `act` under the lock. Reports an excess without the lock.
    ///
    /// After that returns to per-CPU mode if the budget was in it and `should_return` is set.
    fn in_shared_mode<R>(&self, should_return: bool, act: impl FnOnce() -> R) -> R {
        let _errno = errno::save();
        let guard = self.lock();
        let was_percpu = !self.pool.load().is_shared();
        let excess = self.to_shared_mode(&guard);
        let result = act();
        if was_percpu && should_return {
            self.to_percpu_mode(&guard);
        }
        self.unlock(guard);
        self.report_excess(excess);
        result
    }

    /// Enters shared mode, or stays in it; the caller holds the lock.
    ///
    /// Returns the excess: how many units were available above the limit, because more were
    /// released than were held. They are discarded.
    pub(super) fn to_shared_mode(&self, _guard: &Guard<'_>) -> i64 {
        match self.pool.load().is_shared() {
            true => self.discard_pool_excess(),
            false => self.recall_credit(),
        }
    }

    /// Removes the units above the limit in shared mode, and returns how many they were.
    fn discard_pool_excess(&self) -> i64 {
        loop {
            let now = self.pool.load();
            // Relaxed: the limit changes under the lock only, which the caller holds.
            let excess = (now.units() - self.limit.load(Relaxed)).max(0);
            if excess == 0 || self.pool.exchange(now, now.with_units(-excess)) {
                return excess;
            }
        }
    }

    /// Runs the four steps of a recall, and returns the excess.
    fn recall_credit(&self) -> i64 {
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
        // `min` discards an excess, which is returned below.
        let (units, lent) = self.pool.collect_lent(|units, lent| (units + lent - taken).min(limit));
        self.pool.reset_calls();
        (units + lent - taken - limit).max(0)
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
            self.pool.reset_calls();
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
            if !now.is_shared() || now.is_queued() || now.units() < threshold {
                break;
            }
            if self.pool.exchange(now, now.percpu()) {
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
            // would report an over-release. Between the changes the units are of the lower limit.
            self.pool.begin_limit_change(change.min(0), lower);
            // Release: pairs with the Acquire loads in `release_shared`, `release_percpu` and
            // `finish_release`.
            self.limit.store(limit, Release);
            self.pool.end_limit_change(change.max(0));
            self.percpu_threshold.store(percpu_threshold(limit, table::in_use()), Relaxed);
        });
    }

    /// Releases `n` units that may be more than are held; panics if they are, and releases none.
    ///
    /// In shared mode, under the lock, the number of units held is known.
    #[cold]
    pub(super) fn release_checked(&self, n: u64) {
        let (held, limit, is_done) = self.in_shared_mode(false, || {
            let limit = self.limit.load(Relaxed);
            let held = limit - self.pool.load().units();
            let units = countable(n).filter(|&units| units <= held);
            (held, limit, units.map(|units| self.pool.add(units)).is_some())
        });
        if !is_done {
            panic_over_released(format_args!(
                "{n} units were released, but only {held} were held (limit {limit}); the release \
                 is ignored"
            ));
        }
    }

    /// Discards the excess after a release of `n`.
    ///
    /// Panics, unless another thread has discarded it first.
    #[cold]
    pub(super) fn discard_excess(&self, n: u64) {
        let _errno = errno::save();
        let guard = self.lock();
        let excess = self.to_shared_mode(&guard);
        self.unlock(guard);
        if excess != 0 {
            let (held, limit) = ((n as i64 - excess).max(0), self.limit());
            panic_over_released(format_args!(
                "{n} units were released, but only {held} were held (limit {limit}); the excess is \
                 discarded"
            ));
        }
    }

    /// Panics if there was an excess. The caller holds no lock.
    pub(super) fn report_excess(&self, excess: i64) {
        if excess > 0 {
            self.panic_over_released(excess);
        }
    }

    pub(super) fn panic_over_released(&self, excess: i64) -> ! {
        let limit = self.limit();
        panic_over_released(format_args!(
            "{excess} units more than were held were released, by this call or an earlier one \
             (limit {limit}); the excess is discarded"
        ))
    }
}

fn panic_over_released(details: Arguments<'_>) -> ! {
    PanicReason::OverReleased.panic(format_args!("thiscpu: budget over-released: {details}"))
}

/// Allocates memory in the lanes, unless another thread is changing the regions right now.
fn alloc_lanes() -> Option<usize> {
    region::try_lock()?.allocate(credit::BYTES, ITEM_ALIGN).ok()
}

impl Drop for Budget {
    fn drop(&mut self) {
        if let Some(item) = self.gate.load().item() {
            region::lock().free(item, credit::BYTES);
        }
    }
}

//! The recall: how a budget becomes tight, and how it becomes loose again.
//!
//! 1. The gate closes, and then another epoch begins.
//! 2. Fence: no section that saw the gate open can commit any more, neither one that takes or gives nor one
//!    that hands a lane what was borrowed in an earlier epoch.
//! 3. What the lanes have taken is added up. What was lent less what was taken is free, whether it is in
//!    a lane, or on its way to one with a thread that was stopped, or with one that a fork left behind.
//! 4. One exchange adds that to the pool and marks it tight. From that instant the pool is all that is free.
//!
//! Meanwhile others go on with the pool itself; only who would be refused waits for the lock. What lanes
//! hold does not count while the pool is tight, so they are emptied when it becomes loose again.

use super::credit::{self, Credit};
use super::pool::PoolState;
use super::{Budget, countable};
use crate::lanes::{region, table};
use crate::quiesce::ITEM_ALIGN;
use crate::sys::Host;
use crate::sys::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sys::lock::Guard;
use crate::sys::machine::Machine as _;
use crate::sys::startup;
use crate::sys::{errno, fence};
use crate::tier::Tier;

use super::percpu_mode::BATCH_MAX;

/// After so many calls in a row that found plenty a tight budget becomes loose. They cost about what
/// the fence of the next recall will.
pub(super) const CALLS_TO_PERCPU: u32 = 512;
/// So many of them a new budget has behind it: it is loose after 32.
pub(super) const CALLS_OF_NEW: u32 = CALLS_TO_PERCPU - 32;

/// The beginning of each panic message about an over-release, by which callers in C are told.
pub(crate) const OVER_RELEASED: &str = "thiscpu: budget over-released";

/// How often who loosens tries while others change the pool.
const PERCPU_ATTEMPTS: u32 = 8;

/// From how many units in the pool on lanes are worth while: far more than they then borrow, or most of a small
/// limit; never with less than 64 for each lane.
pub(super) const fn percpu_threshold(limit: i64, lanes: usize) -> i64 {
    let lanes = if lanes == 0 { 1 } else { lanes as i64 };
    let (many, most, few) = (8 * lanes * BATCH_MAX, limit / 4 * 3, 64 * lanes);
    let plenty = if many < most { many } else { most };
    if plenty > few { plenty } else { few }
}

impl Budget {
    /// The right to change the gate, the limit and the queue. Waits.
    pub(super) fn lock(&self) -> Guard<'_> {
        startup::tier_or_panic();
        let guard = self.lock.lock();
        self.recover(&guard);
        guard
    }

    /// The same without waiting.
    pub(super) fn try_lock(&self) -> Option<Guard<'_>> {
        let guard = self.lock.try_lock()?;
        self.recover(&guard);
        Some(guard)
    }

    /// Whether nobody waits in the queue who waited in a parent.
    pub(super) fn is_recovered(&self) -> bool {
        // Acquire: pairs with the Release below.
        self.recovered.load(Acquire) == Host::generation()
    }

    pub(super) fn recover_after_fork(&self) {
        let _errno = errno::save();
        let guard = self.lock();
        // Others may have waited for this lock with what they released.
        self.unlock(guard);
    }

    /// Whoever holds the lock first after a fork forgets the waiters, whose threads were not copied, and
    /// takes a limit back that one of those had not finished to change.
    fn recover(&self, guard: &Guard<'_>) {
        if !self.is_recovered() {
            if let Some(limit) = self.pool.unfinished_limit() {
                self.limit.store(limit, Relaxed);
                self.pool.end_limit_change(0);
            }
            self.forget_waiters(guard);
            self.recovered.store(Host::generation(), Release);
        }
    }

    /// How many recalls have begun.
    pub(crate) fn recalls(&self) -> u64 {
        self.recalls.load(Relaxed)
    }

    /// Makes the budget tight.
    pub(super) fn recall(&self) {
        let _errno = errno::save();
        let guard = self.lock();
        let excess = self.to_shared_mode(&guard);
        self.unlock(guard);
        self.report_excess(excess);
    }

    /// The same, by who has the lock. How much more is free than the limit allows: so much was released
    /// that nobody held; it is dropped.
    pub(super) fn to_shared_mode(&self, _guard: &Guard<'_>) -> i64 {
        match self.pool.load().is_shared() {
            true => self.discard_pool_excess(),
            false => self.recall_credit(),
        }
    }

    /// Takes out of a tight pool what is above the limit.
    fn discard_pool_excess(&self) -> i64 {
        loop {
            let now = self.pool.load();
            let excess = (now.units() - self.limit.load(Relaxed)).max(0);
            if excess == 0 || self.pool.exchange(now, now.with_units(-excess)) {
                return excess;
            }
        }
    }

    fn recall_credit(&self) -> i64 {
        let seen = self.gate.look();
        self.gate.turn(seen.closed());
        // Only changed under the lock. Release: pairs with the Acquire in `borrow`. The fence comes after
        // it, so that no section finds the old number later.
        self.recalls.store(self.recalls.load(Relaxed).wrapping_add(1), Release);
        let taken = seen.item().map_or(0, |item| {
            fence::fence();
            // The lanes in use are counted after the fence.
            (1..=table::in_use()).map(|lane| Credit::of(item, lane).taken()).sum()
        });
        let limit = self.limit.load(Relaxed);
        let (units, lent) = self.pool.collect_lent(|units, lent| (units + lent - taken).min(limit));
        self.pool.count_call(false);
        (units + lent - taken - limit).max(0)
    }

    /// Lets lanes hold units, if there are plenty. Does nothing if somebody else holds the lock, or if no
    /// memory can be had.
    #[cold]
    pub(super) fn try_percpu_mode(&self) {
        let _errno = errno::save();
        if let Some(guard) = self.try_lock() {
            self.to_percpu_mode(&guard);
            self.unlock(guard);
        }
    }

    fn to_percpu_mode(&self, _guard: &Guard<'_>) {
        // Where there are no sections a lane is no faster than the pool.
        if startup::chosen() == Some(Tier::Atomic) {
            self.percpu_threshold.store(i64::MAX, Relaxed);
            return;
        }
        let seen = self.gate.look();
        let Some(item) = seen.item().or_else(alloc_lanes) else {
            // Not before as many calls again.
            self.pool.count_call(false);
            return;
        };
        if !seen.is_closed() {
            return;
        }
        let lanes = table::in_use();
        (1..=lanes).for_each(|lane| Credit::of(item, lane).clear());
        let threshold = percpu_threshold(self.limit.load(Relaxed), lanes);
        // Relaxed: a hint for `note`.
        self.percpu_threshold.store(threshold, Relaxed);
        for _ in 0..PERCPU_ATTEMPTS {
            let now = self.pool.load();
            if !now.is_shared() || now.is_queued() || now.units() < threshold {
                // The memory is kept for the next time.
                self.gate.turn(seen.opened(item).closed());
                return;
            }
            if self.pool.exchange(now, now.percpu()) {
                self.gate.turn(seen.opened(item));
                return;
            }
        }
        self.gate.turn(seen.opened(item).closed());
    }

    /// What `look` finds in a pool that holds all that is free, with the limit of that instant.
    pub(super) fn with_all_units<R>(&self, look: impl FnOnce(PoolState, i64) -> R) -> R {
        let _errno = errno::save();
        let guard = self.lock();
        let was_percpu = !self.pool.load().is_shared();
        let excess = self.to_shared_mode(&guard);
        let found = look(self.pool.load(), self.limit.load(Relaxed));
        if was_percpu {
            self.to_percpu_mode(&guard);
        }
        self.unlock(guard);
        self.report_excess(excess);
        found
    }

    pub(super) fn change_limit(&self, limit: i64) {
        let _errno = errno::save();
        let guard = self.lock();
        let was_percpu = !self.pool.load().is_shared();
        let excess = self.to_shared_mode(&guard);
        let old = self.limit.load(Relaxed);
        let (lower, change) = (limit.min(old), limit - old);
        // In this order nobody sees more units than the limit allows, who looks at one and then at the
        // other: for that would be taken for a release of too much. In between the units belong to
        // the lower limit.
        self.pool.begin_limit_change(change.min(0), lower);
        self.limit.store(limit, Release);
        self.pool.end_limit_change(change.max(0));
        self.percpu_threshold.store(percpu_threshold(limit, table::in_use()), Relaxed);
        if was_percpu {
            self.to_percpu_mode(&guard);
        }
        self.unlock(guard);
        self.report_excess(excess);
    }

    /// A release that seems to be of more than is held; under the lock it is seen whether that is so.
    #[cold]
    pub(super) fn release_checked(&self, n: u64) {
        let _errno = errno::save();
        let guard = self.lock();
        let excess = self.to_shared_mode(&guard);
        let limit = self.limit.load(Relaxed);
        let held = limit - self.pool.load().units();
        let released = countable(n).filter(|&n| n <= held);
        if let Some(released) = released {
            self.pool.add(released);
        }
        self.unlock(guard);
        self.report_excess(excess);
        assert!(
            released.is_some(),
            "{OVER_RELEASED}: {n} units were released, but only {held} were held (limit {limit}); the \
             release is ignored"
        );
    }

    /// After a release of `n` which left more free than the limit allows, unless somebody has dropped
    /// the excess by now.
    #[cold]
    pub(super) fn discard_excess(&self, n: u64) {
        let _errno = errno::save();
        let guard = self.lock();
        let excess = self.to_shared_mode(&guard);
        self.unlock(guard);
        assert!(
            excess == 0,
            "{OVER_RELEASED}: {n} units were released, but only {} were held (limit {}); the excess is \
             discarded",
            (n as i64 - excess).max(0),
            self.limit()
        );
    }

    pub(super) fn report_excess(&self, excess: i64) {
        if excess > 0 {
            self.panic_over_released(excess);
        }
    }

    pub(super) fn panic_over_released(&self, excess: i64) -> ! {
        panic!(
            "{OVER_RELEASED}: {excess} units more than were held were released, by this call or an \
             earlier one (limit {}); the excess is discarded",
            self.limit()
        );
    }
}

/// Takes memory in the lanes, unless somebody is changing the regions right now.
fn alloc_lanes() -> Option<usize> {
    region::try_lock()?.allocate(credit::BYTES, ITEM_ALIGN).ok()
}

impl Drop for Budget {
    fn drop(&mut self) {
        if let Some(item) = self.gate.look().item() {
            region::lock().free(item, credit::BYTES);
        }
    }
}

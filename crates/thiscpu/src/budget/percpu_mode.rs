//! The slow paths of acquire and release, for calls that no section and no exchange settles.
//!
//! A unit is always in exactly one place: the pool, credit (lent and not taken), or a caller. The
//! pool counts units as lent before a lane receives them. So credit is in lanes, or on the way.
//!
//! A borrower that is stopped on the way, or that meets a recall, leaves its batch lent to no lane.
//! The next recall counts all credit as available. So no thread has to finish another thread's
//! transfer, or wait for it.

use super::core::{BATCH_MAX, Budget, countable};
use super::credit::{Credit, SCALE, Window};
use super::error::TryAcquireError;
use super::pool::PoolState;
use super::shared_mode::pause_contended;
use crate::lanes::current;
use crate::lanes::table;
use crate::section::{ATTEMPTS, Outcome, Processor, Sections as _};
use crate::sys::atomic::Ordering::Acquire;
use crate::sys::errno;
use crate::sys::startup;

/// The smallest batch worth lending.
const BATCH_MIN: i64 = 8;
/// Once more units than this have been lent, a recall starts the count over.
///
/// A lane counts units times 64, which must not overflow, even if one batch comes on top.
const LENT_MAX: i64 = 1 << 56;
/// The batches that a lane keeps at least, before a release goes to the pool.
const BATCHES_KEPT: i64 = 4;

impl Budget {
    /// Acquires `n` units by whatever the pool's state asks for.
    ///
    /// In per-CPU mode that is the lane, a loan, or a recall. In shared mode it is the pool, after
    /// recovery from a fork.
    #[cold]
    #[inline(never)]
    pub(super) fn try_acquire_percpu(&self, n: u64) -> Result<(), TryAcquireError> {
        startup::tier_or_panic();
        // Any request above the largest limit is refused like one just above it.
        let units = n.min(Self::LIMIT_MAX + 1) as i64;
        let mut attempts = 0;
        loop {
            let now = self.pool.load();
            if !now.is_shared() {
                if self.retry_lane(&mut attempts, units) {
                    return Ok(());
                }
                if now.units() < units {
                    self.recall();
                } else if self.borrow(now, units) {
                    return Ok(());
                }
            } else if now.is_closed() {
                return Err(TryAcquireError::Closed);
            } else if now.is_queued() && !self.is_recovered() {
                self.recover_after_fork();
            } else if now.available() < n {
                return Err(TryAcquireError::Exhausted { available: now.available() });
            } else if self.take(now, units) {
                return Ok(());
            } else {
                pause_contended();
            }
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn release_percpu(&self, n: u64) {
        startup::tier_or_panic();
        let Some(units) = countable(n) else { return self.ignore_release(n) };
        if !self.retry_lane(&mut 0, -units) {
            self.finish_release(self.pool.add(units));
        }
    }

    /// Retries the section as long as that may help; returns whether it committed.
    fn retry_lane(&self, attempts: &mut u32, units: i64) -> bool {
        let _errno = errno::save();
        current::enable_direct();
        while *attempts < ATTEMPTS {
            *attempts += 1;
            match self.try_lane(units) {
                Outcome::Committed => return true,
                Outcome::Aborted => {}
                // `GateClosed` may also mean that the lane index has no lane yet.
                Outcome::NoLane | Outcome::GateClosed if current::acquire_lane() => {}
                _ => *attempts = ATTEMPTS,
            }
        }
        false
    }

    /// Runs the section once.
    ///
    /// Out of line, so that acquires and releases have one copy and no unrolled loop has eight. A
    /// release retries so rarely that the abort harness could not drive copies of its own.
    #[inline(never)]
    fn try_lane(&self, units: i64) -> Outcome {
        // SAFETY: if the gate is open, it leads to an item of 32 bytes in each lane, which only the
        // drop frees.
        unsafe { Processor::add_windowed(self.gate.word(), units * SCALE) }
    }

    /// Takes `units` from a pool in per-CPU mode, and borrows a batch for this thread's lane.
    ///
    /// Returns `false` if the pool has changed since `now` was loaded.
    fn borrow(&self, now: PoolState, units: i64) -> bool {
        // Acquire: pairs with the Release in `recall_credit`. The load of the gate comes after it.
        // Let this load find k recalls. If the gate is open, it was opened after recall k had
        // collected, so only a later recall can collect this batch. A recall counts before it
        // fences, so from then on `add_credit` does not find k. If the gate is closed, there is no
        // batch.
        let recalls = self.recalls.load(Acquire);
        let is_closed = self.gate.load().is_closed();
        let has_lane = current::entry() != 0;
        let batch = if is_closed || !has_lane { 0 } else { batch_size(now.units() - units) };
        if is_closed {
            // If this changes the pool, the exchange below fails, and the caller starts over.
            self.redo_lost_recall();
        }
        if self.pool.lent() > LENT_MAX {
            self.recall();
            return false;
        }
        if !self.pool.lend(now, units, batch) {
            return false;
        }
        if batch > 0 {
            self.add_credit(recalls, batch, units);
        }
        true
    }

    /// Repeats a recall that a fork or a panic ended too soon.
    ///
    /// Such a recall leaves a closed gate and a pool in per-CPU mode. A recall in progress looks
    /// the same, but its thread holds the lock.
    #[cold]
    fn redo_lost_recall(&self) {
        let _errno = errno::save();
        if let Some(guard) = self.try_lock() {
            let is_lost = self.gate.load().is_closed() && !self.pool.load().is_shared();
            if is_lost {
                self.to_shared_mode(&guard);
            }
            self.unlock(guard);
        }
    }

    /// Adds a borrowed batch to this thread's lane.
    ///
    /// If that is impossible the batch stays lent to no lane until the next recall.
    fn add_credit(&self, recalls: u64, batch: i64, units: i64) {
        let _errno = errno::save();
        for _ in 0..ATTEMPTS {
            let (entry, item) = (current::entry(), self.gate.load().item());
            let Some(item) = item.filter(|_| entry != 0) else { return };
            let old = Credit::at_entry(item, entry).window();
            let capacity = (BATCHES_KEPT * batch).max(2 * (batch + units));
            let new = Window::new(old.lent() + batch, capacity);
            // SAFETY: this is the gate of a budget. If it is open, it leads to an item of 32 bytes
            // in each lane, which only the drop frees.
            let outcome = unsafe {
                Processor::add_credit(self.gate.word(), &self.recalls, recalls, old.0, new.0)
            };
            match outcome {
                // Another thread of this lane borrowed at the same time, or this thread has moved.
                // Acquire: pairs with the Release in `recall_credit`, as in `borrow`.
                Outcome::Mismatch if self.recalls.load(Acquire) == recalls => {}
                Outcome::Aborted => {}
                _ => return,
            }
        }
    }
}

/// Returns the size of the batch to borrow from a pool that has `units` left after the call.
fn batch_size(units: i64) -> i64 {
    let share = units / (4 * table::in_use().max(1) as i64);
    if share < BATCH_MIN { 0 } else { share.min(BATCH_MAX) }
}

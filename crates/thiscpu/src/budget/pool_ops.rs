//! Calls on the pool: taking units, counting calls, and finishing a release.

use std::panic::resume_unwind;

use super::core::Budget;
use super::pool::PoolState;
use crate::sys::atomic::Ordering::Relaxed;
use crate::sys::errno;

impl Budget {
    /// Takes units from a pool in shared mode that was seen to hold them.
    ///
    /// Returns `false` if the pool has changed since `now` was loaded.
    #[inline(always)]
    pub(super) fn take(&self, now: PoolState, units: i64) -> bool {
        let after = now.with_units(-units);
        let is_done = self.pool.exchange(now, after);
        if is_done {
            self.note_call(after);
        }
        is_done
    }

    /// Counts a call in shared mode.
    ///
    /// Returns to per-CPU mode after enough plentiful calls in a row.
    #[inline(always)]
    pub(super) fn note_call(&self, now: PoolState) {
        if self.count_call(now) {
            self.try_percpu_mode();
        }
    }

    /// Counts a call in shared mode, and returns whether it is time for per-CPU mode.
    #[inline(always)]
    pub(super) fn count_call(&self, now: PoolState) -> bool {
        // Relaxed: a hint. The change of mode reads the pool again.
        self.pool.calls.count(now.units() >= self.percpu_threshold.load(Relaxed))
    }

    /// Finishes a release to the pool.
    ///
    /// Discards an excess, serves waiters, or counts the call. Never waits.
    #[cold]
    pub(super) fn finish_release(&self, now: PoolState) {
        let _errno = errno::save();
        self.discard_impossible_units();
        if self.needs_service(now) {
            if let Some(panic) = self.serve() {
                resume_unwind(panic);
            }
        } else if now.is_open() {
            self.note_call(now);
        }
    }
}

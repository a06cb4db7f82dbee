//! Releases of more units than are held: counted and reported, at no innocent caller's expense.
//!
//! Such a release cannot be told from a right one at once: its units look as if others had released
//! them. So it is found when more is available than the limit allows, possibly by a call of
//! another thread. That call must not suffer for it. The units above the limit, the *excess*, are
//! discarded under the lock, and counted; standard error gets one line for each budget.

use super::core::Budget;
use super::pool::PoolState;
use crate::sys::atomic::Ordering::{Acquire, Relaxed};
use crate::sys::lock::Guard;
use crate::sys::stderr::write_line;

impl Budget {
    /// Returns whether a pool with the state `now` may hold units above the limit.
    ///
    /// While another thread changes the limit it may say so wrongly.
    pub(super) fn may_have_excess(&self, now: PoolState) -> bool {
        // Acquire: pairs with the Release in `change_limit`, which removes units before it stores a
        // lower limit. So if this load sees the lower limit, the load of the pool below no longer
        // sees those units.
        let limit = self.limit.load(Acquire);
        now.units() > limit && self.pool.load().units() > limit
    }

    /// Removes the units above the limit from the pool, and counts them.
    pub(super) fn discard_pool_excess(&self, _guard: &Guard<'_>) {
        // Relaxed: the limit changes under the lock only, which the caller holds.
        self.keep_at_most(self.limit.load(Relaxed));
    }

    /// Removes units that cannot exist under any limit. Takes no lock.
    ///
    /// Thus the pool's word does not overflow while another thread holds the lock for long.
    pub(super) fn discard_impossible_units(&self) {
        self.keep_at_most(Self::LIMIT_MAX as i64);
    }

    fn keep_at_most(&self, most: i64) {
        loop {
            let now = self.pool.load();
            let excess = now.units() - most;
            if excess <= 0 {
                return;
            }
            if self.pool.exchange(now, now.with_units(-excess)) {
                return self.count_over_released(excess as u64);
            }
        }
    }

    /// Counts units that were released but not held. They are in no pool and no lane.
    pub(super) fn count_over_released(&self, units: u64) {
        // Relaxed, all: a statistic, which orders nothing.
        let counter = &self.pool.over_released;
        let mut before = counter.load(Relaxed);
        let exchange = |before: u64| {
            counter.compare_exchange(before, before.saturating_add(units), Relaxed, Relaxed)
        };
        while let Err(now) = exchange(before) {
            before = now;
        }
    }

    /// Ignores a release of more units than any budget can have.
    #[cold]
    pub(super) fn ignore_release(&self, n: u64) {
        self.count_over_released(n);
        self.report_over_release();
    }

    /// Reports the first excess of this budget on standard error.
    ///
    /// The caller holds no lock, because standard error may block.
    pub(super) fn report_over_release(&self) {
        // Relaxed, all: a line too many or too late does no harm.
        let units = self.pool.over_released.load(Relaxed);
        // A model test makes thousands of them.
        if cfg!(thiscpu_model) || units == 0 || self.pool.is_reported.load(Relaxed) != 0 {
            return;
        }
        if self.pool.is_reported.swap(1, Relaxed) == 0 {
            write_line(
                libc::STDERR_FILENO,
                format_args!(
                    "thiscpu: budget over-released: {units} units more were released than were \
                     held (limit {}, budget at {self:p}); they are discarded, but the limit may \
                     have been exceeded by as many; find the caller that releases twice or too \
                     much (reported once, counted by over_released)",
                    self.limit()
                ),
            );
        }
    }
}

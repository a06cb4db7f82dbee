//! Calls in shared mode: one load of the pool and one exchange of its first word, or one addition.
//!
//! Without contention such a call costs what one shared atomic costs, so these functions do nothing
//! else. All other cases are in [`super::percpu_mode`] and [`super::pool_ops`]: per-CPU mode,
//! waiters, and releases of too much.

use super::core::Budget;
use super::error::TryAcquireError;
use crate::lanes::current;
use crate::sys::Host;
use crate::sys::atomic::Ordering::Acquire;
use crate::sys::machine::{Machine as _, spins};
use crate::sys::startup;

/// How many spins a caller leaves the pool alone after its exchange failed.
///
/// Meanwhile another CPU completes several calls with the cache line that it has. That gives up
/// latency for throughput. `pause` takes 10 to 140 cycles, by processor: this is 0.2 to 3 µs.
const CONTENDED_SPINS: u32 = spins(64);

/// Leaves the pool alone for a moment, after another thread has changed it first.
pub(crate) fn pause_contended() {
    (0..CONTENDED_SPINS).for_each(|_| Host::pause());
}

impl Budget {
    #[inline(never)]
    pub(super) fn try_acquire_shared(&self, n: u64) -> Result<(), TryAcquireError> {
        let now = self.pool.load();
        // Before the first use no tier is chosen; the slow path chooses it.
        if !now.is_open() || startup::chosen().is_none() {
            return self.try_acquire_percpu(n);
        }
        if now.available() < n {
            return Err(TryAcquireError::Exhausted { available: now.available() });
        }
        let after = now.with_units(-(n as i64));
        if !self.pool.exchange(now, after) {
            return self.try_acquire_contended(n);
        }
        if self.count_call(after) {
            return self.try_percpu_mode_after_acquire();
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn try_acquire_contended(&self, n: u64) -> Result<(), TryAcquireError> {
        pause_contended();
        self.try_acquire_percpu(n)
    }

    #[cold]
    #[inline(never)]
    fn try_percpu_mode_after_acquire(&self) -> Result<(), TryAcquireError> {
        self.try_percpu_mode();
        Ok(())
    }

    /// Acquires as many units as are available, at most `n`, in one exchange.
    #[cold]
    pub(super) fn acquire_up_to(&self, n: u64) -> u64 {
        loop {
            let now = self.pool.load();
            if now.is_shared() && (!now.is_queued() || self.is_recovered()) {
                let units = now.available().min(n);
                if units == 0 || self.take(now, units as i64) {
                    return units;
                }
            } else if self.try_acquire_shared(n).is_ok() {
                return n;
            }
        }
    }

    #[inline(never)]
    pub(super) fn release_shared(&self, n: u64) {
        // Acquire: pairs with the Release in `change_limit`. A thread that holds units of a raised
        // limit loads that limit here, so its release does not look like an excess.
        let limit = self.limit.load(Acquire);
        // If the gate is open, this lane has its fill of credit, or the section was aborted.
        let is_for_pool = self.gate.load().is_closed() || current::has_direct_lane();
        if startup::chosen().is_none() || !is_for_pool || n > limit as u64 {
            return self.release_percpu(n);
        }
        let now = self.pool.add(n as i64);
        if now.units() > limit || now.is_queued() || now.is_closed() {
            self.finish_release(now);
        } else if now.is_open() {
            self.note_call(now);
        }
    }
}

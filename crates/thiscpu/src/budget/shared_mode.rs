//! Calls in shared mode: one load of the pool and one exchange of its first word, or one addition.
//!
//! Without contention such a call costs what one shared atomic costs, so these functions do nothing
//! else. All other cases are in [`super::percpu_mode`] and [`super::pool_ops`]: per-CPU mode,
//! waiters, and releases of too much.

use super::core::Budget;
use super::error::TryAcquireError;
use crate::sys::Host;
use crate::sys::atomic::Ordering::Acquire;
use crate::sys::machine::{Machine as _, spins};
use crate::sys::startup;

/// How many spins a caller leaves the pool alone after its exchange failed.
///
/// Meanwhile another CPU completes several calls with the cache line that it has. That gives up
/// latency for throughput. `pause` takes 10 to 140 cycles, by processor: this is 0.2 to 3 µs.
const CONTENDED_SPINS: u32 = spins(64);

impl Budget {
    #[inline(never)]
    pub(super) fn try_acquire_shared(&self, n: u64) -> Result<(), TryAcquireError> {
        // Before the first use no tier is chosen; the slow path chooses it.
        while startup::chosen().is_some() {
            let now = self.pool.load();
            if !now.is_open() {
                break;
            }
            if now.available() < n {
                return Err(TryAcquireError::Exhausted { available: now.available() });
            }
            if self.take(now, n as i64) {
                return Ok(());
            }
            (0..CONTENDED_SPINS).for_each(|_| Host::pause());
        }
        self.try_acquire_percpu(n)
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
        if startup::chosen().is_none() || !self.gate.load().is_closed() || n > limit as u64 {
            return self.release_percpu(n);
        }
        let now = self.pool.add(n as i64);
        if now.is_open() && now.units() <= limit {
            self.note_call(now);
        } else {
            self.finish_release(now);
        }
    }
}

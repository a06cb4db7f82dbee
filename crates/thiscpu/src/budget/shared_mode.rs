//! Calls in shared mode: one load of the pool and one exchange of its first word, or one addition.
//!
//! A call at the limit costs what one shared atomic costs, so these functions do nothing else. All
//! other cases are in [`super::percpu_mode`] and [`super::pool_ops`]: per-CPU mode, waiters, and
//! releases of too much.

use super::core::{Budget, Exhausted};
use crate::sys::Host;
use crate::sys::atomic::Ordering::Acquire;
use crate::sys::machine::{Machine as _, spins};
use crate::sys::startup;

/// How many spins a caller leaves a contended pool alone; one or two microseconds.
///
/// Meanwhile another CPU completes several calls with the cache line it has.
const CONTENDED_SPINS: u32 = spins(64);

impl Budget {
    #[inline(never)]
    pub(super) fn try_acquire_shared(&self, n: u64) -> Result<(), Exhausted> {
        while startup::chosen().is_some() {
            let now = self.pool.load();
            if !now.is_shared() || now.is_queued() {
                break;
            }
            if now.available() < n {
                return Err(Exhausted { available: now.available() });
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
        // A request for more than the pool can count would be refused without a recall.
        let n = n.min(Self::LIMIT_MAX);
        loop {
            let now = self.pool.load();
            match now.is_shared() && (!now.is_queued() || self.is_recovered()) {
                false if self.try_acquire_shared(n).is_ok() => return n,
                false => {}
                true => {
                    let units = now.available().min(n);
                    if units == 0 || self.take(now, units as i64) {
                        return units;
                    }
                }
            }
        }
    }

    #[inline(never)]
    pub(super) fn release_shared(&self, n: u64) {
        // Acquire: pairs with the Release in `change_limit`. Units that a raised limit granted are
        // not too many.
        let limit = self.limit.load(Acquire);
        if startup::chosen().is_none() || !self.gate.load().is_closed() || n > limit as u64 {
            return self.release_percpu(n);
        }
        let now = self.pool.add(n as i64);
        if now.is_shared() && !now.is_queued() && now.units() <= limit {
            self.note_call(now);
        } else {
            self.finish_release(now, n);
        }
    }
}

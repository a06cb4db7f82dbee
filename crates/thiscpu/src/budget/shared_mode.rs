//! Calls of a tight budget: one look at the pool and one exchange of its first word, or one addition to it.
//! What they cost at the limit is what one shared atomic costs, so they are kept as short as that.
//!
//! Whatever is not simple (a loose budget, somebody who waits, a release of too much) is left to
//! [`super::percpu_mode`] and [`super::recall`].

use super::pool::PoolState;
use super::recall::CALLS_TO_PERCPU;
use super::{Budget, Exhausted};
use crate::sys::Host;
use crate::sys::atomic::Ordering::{Acquire, Relaxed};
use crate::sys::errno;
use crate::sys::machine::{Machine as _, looks};
use crate::sys::startup;

/// How many turns a caller leaves a contended pool alone, so that another gets several calls out of
/// having its cache line; one or two microseconds.
const CONTENDED_SPINS: u32 = looks(64);

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

    /// Takes from a tight pool, which is seen to hold so much. False if it has changed meanwhile.
    #[inline(always)]
    pub(super) fn take(&self, now: PoolState, units: i64) -> bool {
        let after = now.with_units(-units);
        let is_done = self.pool.exchange(now, after);
        if is_done {
            self.note(after);
        }
        is_done
    }

    #[inline(never)]
    pub(super) fn release_shared(&self, n: u64) {
        // Acquire: pairs with the Release in `change_limit`; units of a raised limit are not too many.
        let limit = self.limit.load(Acquire);
        if startup::chosen().is_none() || !self.gate.look().is_closed() || n > limit as u64 {
            return self.release_percpu(n);
        }
        let now = self.pool.add(n as i64);
        if now.is_shared() && !now.is_queued() && now.units() <= limit {
            self.note(now);
        } else {
            self.released(now, n);
        }
    }

    /// Takes notice of how many units there are in a tight pool, and lets lanes hold some if there are plenty.
    #[inline(always)]
    pub(super) fn note(&self, now: PoolState) {
        // Relaxed: a hint; who loosens looks again.
        let is_plenty = now.units() >= self.percpu_threshold.load(Relaxed);
        if self.pool.count_call(is_plenty) >= CALLS_TO_PERCPU && is_plenty {
            self.try_percpu_mode();
        }
    }

    /// What is to be done about a pool that a release has led to.
    #[cold]
    pub(super) fn released(&self, now: PoolState, n: u64) {
        let _errno = errno::save();
        // In this order: units of a limit that has been lowered since are gone from the pool by now.
        let limit = self.limit.load(Acquire);
        if now.units() > limit && self.pool.load().units() > limit {
            self.discard_excess(n);
        } else if now.is_queued() {
            self.serve();
        } else if now.is_shared() {
            self.note(now);
        }
    }
}

//! Calls in shared mode: a look at the pool and the clock, and one exchange if units are taken.
//!
//! All other cases are in [`super::percpu_mode`].

use super::core::{Look, Rate};
use super::error::RateError;
use crate::budget::shared_mode::pause_contended;
use crate::sys::startup;

impl Rate {
    #[inline(never)]
    pub(super) fn try_acquire_shared(&self, n: u64) -> Result<(), RateError> {
        let look = self.look();
        // Before the first use no tier is chosen; the slow path chooses it.
        if !look.state.is_open() || startup::chosen().is_none() {
            return self.try_acquire_slow(n);
        }
        look.check(n)?;
        if self.take(&look, n) {
            return Ok(());
        }
        pause_contended();
        self.try_acquire_slow(n)
    }

    /// Takes `n` units from a pool that was seen to hold them.
    ///
    /// Returns `false` if the pool has changed since the look.
    #[inline]
    pub(super) fn take(&self, look: &Look, n: u64) -> bool {
        let quanta = look.terms.quanta(n);
        if !self.shared.pool.exchange(look.state, look.taken(quanta)) {
            return false;
        }
        if look.state.is_open() {
            self.note_call(look, look.level - quanta);
        }
        true
    }

    /// Counts a call in shared mode that left `level` quanta in the pool.
    ///
    /// Returns to per-CPU mode after enough calls in a row that left three quarters of the burst.
    #[inline]
    fn note_call(&self, look: &Look, level: i128) {
        let terms = &look.terms;
        let is_plentiful = terms.share > 0 && 4 * level >= 3 * terms.quanta(terms.burst);
        if self.shared.calls.count(is_plentiful) {
            self.try_percpu_mode();
        }
    }
}

impl Look {
    /// Returns an error if the pool, which is the whole bucket, has fewer than `n` units.
    #[inline]
    pub(super) fn check(&self, n: u64) -> Result<(), RateError> {
        self.check_request(n)?;
        let missing = self.terms.quanta(n) - self.level;
        if missing > 0 {
            return Err(RateError::Exceeded {
                available: self.terms.units(self.level),
                retry_after: self.terms.time_to_earn(missing),
            });
        }
        Ok(())
    }

    /// Returns an error if `n` units can never be available.
    #[inline]
    pub(super) fn check_request(&self, n: u64) -> Result<(), RateError> {
        match () {
            () if n == 0 => Err(RateError::ZeroUnits),
            () if n > self.terms.burst => Err(RateError::AboveBurst { burst: self.terms.burst }),
            () => Ok(()),
        }
    }
}

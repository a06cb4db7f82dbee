//! What the oracle says about a budget during a call, and which answers are therefore possible.

use crate::oracle::Range;
use crate::violation::{Checked, within};

#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// The range of the units that were held during the call.
    pub(super) held: Range,
    /// The range of the limit during the call.
    pub(super) limit: Range,
    /// Whether no thread waited. Free units are promised to waiters.
    pub(super) no_waiters: bool,
}

impl Bounds {
    /// Returns the range of the units that were available during the call.
    fn available(&self) -> Range {
        let least = if self.no_waiters { self.limit.0 - self.held.1 } else { 0 };
        (least.max(0), (self.limit.1 - self.held.0).max(0))
    }

    pub(super) fn check_available(&self, available: u64) -> Checked {
        within("available units", self.available(), available as i64)
    }

    pub(super) fn check_held(&self, acquired: u64) -> Checked {
        within("held units", self.held, acquired as i64)
    }

    /// Checks a call that acquired `n`, which `held` does not contain.
    pub(super) fn check_granted(&self, n: u64) -> Checked {
        // The low end may be any number: it subtracts units that are acquired and released
        // meanwhile.
        within("held units after an acquire", (i64::MIN, self.limit.1), self.held.0 + n as i64)
    }

    /// Checks a call for `n` that was refused.
    pub(super) fn check_refused(&self, n: u64, available: u64) -> Checked {
        within("available units at a refusal", (0, n as i64 - 1), available as i64)?;
        within("available units that a refusal reports", self.available(), available as i64)
    }

    /// Checks a call that took all available units, fewer than it wanted.
    pub(super) fn check_all_taken(&self) -> Checked {
        within("available units when all were taken", self.available(), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { held: (60, 80), limit: (100, 100), no_waiters: true };

    #[test]
    fn acquire_above_the_limit_is_found() {
        assert!(BOUNDS.check_granted(40).is_ok());
        assert!(BOUNDS.check_granted(41).is_err());
        assert!(Bounds { limit: (50, 101), ..BOUNDS }.check_granted(41).is_ok());
    }

    #[test]
    fn wrong_refusal_is_found() {
        assert!(BOUNDS.check_refused(30, 29).is_ok());
        assert!(BOUNDS.check_refused(30, 30).is_err(), "enough were available");
        assert!(BOUNDS.check_refused(30, 19).is_err(), "more were available");
        assert!(BOUNDS.check_refused(50, 41).is_err(), "fewer were available");
        assert!(Bounds { limit: (90, 100), ..BOUNDS }.check_refused(30, 10).is_ok());
        assert!(Bounds { no_waiters: false, ..BOUNDS }.check_refused(30, 0).is_ok());
        assert!(BOUNDS.check_all_taken().is_err());
        assert!(Bounds { held: (60, 100), ..BOUNDS }.check_all_taken().is_ok());
    }

    #[test]
    fn nothing_is_available_above_the_limit() {
        let debt = Bounds { held: (130, 140), ..BOUNDS };
        assert!(debt.check_available(0).is_ok());
        assert!(debt.check_available(1).is_err());
    }
}

//! What the books say of a budget at the time of a call, and what its answer therefore can be.

use crate::books::Range;
use crate::wrong::{Checked, within};

#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// What was held, at each instant of the call.
    pub(super) held: Range,
    /// The limits that were in force at some instant of it.
    pub(super) limit: Range,
    /// Whether nobody waited: to whom waits what is free is promised.
    pub(super) nobody_waited: bool,
}

impl Known {
    /// What may have been free at an instant of the call.
    fn free(&self) -> Range {
        let least = if self.nobody_waited { self.limit.0 - self.held.1 } else { 0 };
        (least.max(0), (self.limit.1 - self.held.0).max(0))
    }

    pub(super) fn check_free(&self, available: u64) -> Checked {
        within("what is free", self.free(), available as i64)
    }

    pub(super) fn check_held(&self, acquired: u64) -> Checked {
        within("what is held", self.held, acquired as i64)
    }

    /// After a call that got `n`, which are not among what was held.
    pub(super) fn check_granted(&self, n: u64) -> Checked {
        // The least that was held may be any number: what comes and goes meanwhile is only taken off.
        within("what is held after a grant", (i64::MIN, self.limit.1), self.held.0 + n as i64)
    }

    /// After a call that got none of `n`.
    pub(super) fn check_refused(&self, n: u64, available: u64) -> Checked {
        within("what is free when a call is refused", (0, n as i64 - 1), available as i64)?;
        within("what a refusal says is free", self.free(), available as i64)
    }

    /// After a call that took all there was, which was less than it wanted.
    pub(super) fn check_all_taken(&self) -> Checked {
        within("what is free when all was taken", self.free(), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: Known = Known { held: (60, 80), limit: (100, 100), nobody_waited: true };

    #[test]
    fn nobody_is_granted_more_than_the_limit() {
        assert!(KNOWN.check_granted(40).is_ok());
        assert!(KNOWN.check_granted(41).is_err());
        assert!(Known { limit: (50, 101), ..KNOWN }.check_granted(41).is_ok());
    }

    #[test]
    fn nobody_is_refused_who_had_room_all_the_while() {
        assert!(KNOWN.check_refused(30, 29).is_ok());
        assert!(KNOWN.check_refused(30, 30).is_err(), "there were enough");
        assert!(KNOWN.check_refused(30, 19).is_err(), "there were more");
        assert!(KNOWN.check_refused(50, 41).is_err(), "there were fewer");
        assert!(Known { limit: (90, 100), ..KNOWN }.check_refused(30, 10).is_ok());
        assert!(Known { nobody_waited: false, ..KNOWN }.check_refused(30, 0).is_ok());
        assert!(KNOWN.check_all_taken().is_err());
        assert!(Known { held: (60, 100), ..KNOWN }.check_all_taken().is_ok());
    }

    #[test]
    fn a_debt_leaves_nothing_free() {
        let debt = Known { held: (130, 140), ..KNOWN };
        assert!(debt.check_free(0).is_ok());
        assert!(debt.check_free(1).is_err());
    }
}

//! The pool: the units that are in no lane, and whether a lane may hold any.
//!
//! It is two words that change together by one 16-byte compare-exchange.
//!
//! | first word | meaning |
//! |---|---|
//! | bit 0, `TIGHT` | no lane holds a unit: the units here are all that are free |
//! | bit 1, `QUEUED` | with `TIGHT`: somebody waits, and what is free is promised to the first |
//! | bits 2 and up | units, with a sign: below 0 while more is held than the limit allows |
//!
//! | | second word |
//! |---|---|
//! | loose | how many units were lent to lanes since the pool was last tight |
//! | tight | how many calls have found plenty of units since one did not |
//!
//! A refusal rests on the first word alone: one load shows that no lane holds anything and how little
//! there is.

use crate::section::double::Double;

const TIGHT: u64 = 1;
const QUEUED: u64 = 1 << 1;
const UNIT: i64 = 1 << 2;

/// What the pool held when it was looked at. Where two words were loaded one after the other they may
/// not belong together; an exchange with such a mixture fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen([u64; 2]);

#[derive(Debug)]
#[repr(transparent)]
pub(super) struct Pool(Double);

impl Seen {
    const fn new(units: i64, flags: u64, second: u64) -> Seen {
        Seen([(units * UNIT) as u64 | flags, second])
    }

    pub(super) fn units(self) -> i64 {
        // An arithmetic shift: the flags below are cut off, the sign stays.
        self.0[0] as i64 >> UNIT.trailing_zeros()
    }

    pub(super) fn is_tight(self) -> bool {
        self.0[0] & TIGHT != 0
    }

    /// Whether somebody waits.
    pub(super) fn is_queued(self) -> bool {
        self.0[0] & QUEUED != 0
    }

    /// The units that anybody may have, if the pool is tight; none while somebody waits.
    pub(super) fn free(self) -> u64 {
        match self.is_queued() {
            true => 0,
            false => self.units().max(0) as u64,
        }
    }

    fn flags(self) -> u64 {
        self.0[0] & (TIGHT | QUEUED)
    }

    /// With `change` more units, the rest as it is.
    pub(super) fn plus(self, change: i64) -> Seen {
        Seen::new(self.units() + change, self.flags(), self.0[1])
    }

    /// A loose pool after it has lent `units` to a lane.
    pub(super) fn lending(self, units: i64) -> Seen {
        debug_assert!(!self.is_tight());
        Seen::new(self.units() - units, 0, self.0[1] + units as u64)
    }

    /// What a loose pool has lent.
    pub(super) fn lent(self) -> i64 {
        debug_assert!(!self.is_tight());
        self.0[1] as i64
    }

    /// Tight, with so many units.
    pub(super) fn tight(units: i64) -> Seen {
        Seen::new(units, TIGHT, 0)
    }

    /// Loose, with the units it has; nothing is lent yet.
    pub(super) fn loose(self) -> Seen {
        Seen::new(self.units(), 0, 0)
    }

    /// A tight pool with or without somebody who waits.
    pub(super) fn queued(self, waits: bool) -> Seen {
        let flags = if waits { TIGHT | QUEUED } else { TIGHT };
        Seen::new(self.units(), flags, 0)
    }

    /// How many calls have found plenty of units in a tight pool, one after the other.
    pub(super) fn calm(self) -> u64 {
        debug_assert!(self.is_tight());
        self.0[1]
    }

    /// The same pool after one more call that found plenty, or after one that did not.
    pub(super) fn noting(self, plenty: bool) -> Seen {
        debug_assert!(self.is_tight());
        Seen([self.0[0], if plenty { self.0[1].saturating_add(1) } else { 0 }])
    }
}

impl Pool {
    /// Tight, with all of `limit`.
    pub(super) const fn new(limit: i64, calm: u64) -> Pool {
        Pool(Double::new(Seen::new(limit, TIGHT, calm).0))
    }

    /// What it holds. Loads are acquire, and in the order second word, first word.
    #[inline]
    pub(super) fn look(&self) -> Seen {
        Seen(self.0.load())
    }

    /// Replaces `old` by `new` if it is still there. Acquire and release: what a releaser did before
    /// is visible to who gets the units.
    #[inline]
    pub(super) fn exchange(&self, old: Seen, new: Seen) -> bool {
        self.0.exchange(old.0, new.0)
    }

    /// Changes it by `change` and returns what it was. Lock-free.
    pub(super) fn update(&self, change: impl Fn(Seen) -> Seen) -> Seen {
        loop {
            let now = self.look();
            if self.exchange(now, change(now)) {
                return now;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_keep_their_sign_beside_flags() {
        for units in [0, 1, -1, 5, -7, 1 << 56, -(1 << 56)] {
            for seen in [Seen::tight(units), Seen::tight(units).queued(true)] {
                assert_eq!(seen.units(), units, "{seen:?}");
                assert_eq!(seen.plus(3).units(), units + 3);
            }
            assert_eq!(Seen::tight(units).loose().lending(2).units(), units - 2);
        }
    }
}

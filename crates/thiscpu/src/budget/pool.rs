//! The pool: the units that are in no lane, and whether a lane may hold any.
//!
//! | first word | meaning |
//! |---|---|
//! | bit 0, `SHARED` | no lane holds a unit: the units here are all that are free |
//! | bit 1, `QUEUED` | with `SHARED`: somebody waits, and what is free is promised to the first |
//! | bits 2 and up | units, with a sign: below 0 while more is held than the limit allows |
//!
//! The second word says how many units were lent to lanes since the pool was last tight; 0 while it is tight.
//! To lend units, and to gather them, both words change together by one 16-byte exchange. All else
//! leaves what is lent as it is, and changes the first word alone. While the limit of a tight pool is being changed
//! the second word is the limit that the units belong to, times two, plus one: a fork may leave another one in
//! its place.
//!
//! A refusal rests on the first word: one load shows that no lane holds anything and how little there is.

use crate::sys::atomic::{AtomicU32, Ordering::Relaxed};
use crate::sys::double::Double;

const SHARED: u64 = 1;
const QUEUED: u64 = 1 << 1;
const UNIT: i64 = 1 << 2;

/// The first word of a pool, when it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PoolState(u64);

/// It has a cache line to itself: each call changes it while the budget is tight, and the gate, which
/// each call loads first, should stay in every CPU's cache.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Pool {
    words: Double,
    /// About how many calls have found plenty of units in a tight pool since one did not.
    plentiful_calls: AtomicU32,
}

impl PoolState {
    const fn new(units: i64, flags: u64) -> PoolState {
        PoolState((units * UNIT) as u64 | flags)
    }

    pub(super) fn units(self) -> i64 {
        // An arithmetic shift: the flags below are cut off, the sign stays.
        self.0 as i64 >> UNIT.trailing_zeros()
    }

    pub(super) fn is_shared(self) -> bool {
        self.0 & SHARED != 0
    }

    /// Whether somebody waits.
    pub(super) fn is_queued(self) -> bool {
        self.0 & QUEUED != 0
    }

    /// The units that anybody may have, if the pool is tight; none while somebody waits.
    pub(super) fn available(self) -> u64 {
        match self.is_queued() {
            true => 0,
            false => self.units().max(0) as u64,
        }
    }

    /// With `change` more units, the rest as it is.
    pub(super) fn with_units(self, change: i64) -> PoolState {
        PoolState(self.0.wrapping_add((change * UNIT) as u64))
    }

    /// A tight pool, loose from now on.
    pub(super) fn percpu(self) -> PoolState {
        PoolState::new(self.units(), 0)
    }

    /// A tight pool with or without somebody who waits.
    pub(super) fn queued(self, waits: bool) -> PoolState {
        PoolState::new(self.units(), if waits { SHARED | QUEUED } else { SHARED })
    }
}

impl Pool {
    /// Tight, with all of `limit`.
    pub(super) const fn new(limit: i64, plentiful_calls: u32) -> Pool {
        Pool {
            words: Double::new([PoolState::new(limit, SHARED).0, 0]),
            plentiful_calls: AtomicU32::new(plentiful_calls),
        }
    }

    /// Acquire: what a releaser did before is visible to who gets the units.
    #[inline]
    pub(super) fn load(&self) -> PoolState {
        PoolState(self.words.first())
    }

    /// Replaces `old` by `new` if it is still there. Acquire and release.
    #[inline]
    pub(super) fn exchange(&self, old: PoolState, new: PoolState) -> bool {
        self.words.exchange_first(old.0, new.0)
    }

    /// Puts `units` into it, and returns what it is then. Acquire and release; wait-free where the
    /// processor adds in one step.
    #[inline]
    pub(super) fn add(&self, units: i64) -> PoolState {
        PoolState(self.words.add_first((units * UNIT) as u64)).with_units(units)
    }

    /// Changes it as `change` says, and returns what it was. Lock-free.
    pub(super) fn update(&self, change: impl Fn(PoolState) -> PoolState) -> PoolState {
        loop {
            let now = self.load();
            if self.exchange(now, change(now)) {
                return now;
            }
        }
    }

    /// How much a loose pool has lent.
    pub(super) fn lent(&self) -> i64 {
        self.words.load()[1] as i64
    }

    /// Takes `units` from a loose pool, and as many as `lent` more for a lane. False if it has changed
    /// meanwhile.
    pub(super) fn lend(&self, now: PoolState, units: i64, lent: i64) -> bool {
        debug_assert!(!now.is_shared());
        let [_, second] = self.words.load();
        // If the words that were loaded do not belong together this fails.
        self.words
            .exchange([now.0, second], [now.with_units(-units - lent).0, second + lent as u64])
    }

    /// Makes a loose pool tight, with as many units as `free` makes of what is in it and what was lent.
    /// Returns these two.
    pub(super) fn collect_lent(&self, free: impl Fn(i64, i64) -> i64) -> (i64, i64) {
        loop {
            let [first, second] = self.words.load();
            let (units, lent) = (PoolState(first).units(), second as i64);
            let shared = PoolState::new(free(units, lent), SHARED);
            if self.words.exchange([first, second], [shared.0, 0]) {
                return (units, lent);
            }
        }
    }

    /// Adds `change` to a tight pool, whose units from now on belong to `limit` as long as that is not where it
    /// should be.
    pub(super) fn begin_limit_change(&self, change: i64, limit: i64) {
        self.change_both(change, limit as u64 * 2 + 1);
    }

    /// Adds `change` to a tight pool, whose units belong to the limit that there is.
    pub(super) fn end_limit_change(&self, change: i64) {
        self.change_both(change, 0);
    }

    fn change_both(&self, change: i64, new_second: u64) {
        loop {
            let [first, second] = self.words.load();
            let new = [PoolState(first).with_units(change).0, new_second];
            if self.words.exchange([first, second], new) {
                return;
            }
        }
    }

    /// The limit that a tight pool's units belong to, if a change of it was begun and not ended.
    pub(super) fn unfinished_limit(&self) -> Option<i64> {
        let [first, second] = self.words.load();
        (PoolState(first).is_shared() && second != 0).then_some((second / 2) as i64)
    }

    /// How many calls have found plenty, with this one, if it did. Two at the same time may count as one.
    #[inline]
    pub(super) fn count_call(&self, is_plenty: bool) -> u32 {
        // Relaxed, all three: nothing rests on it.
        let before = self.plentiful_calls.load(Relaxed);
        match is_plenty {
            true => self.plentiful_calls.store(before.saturating_add(1), Relaxed),
            false if before != 0 => self.plentiful_calls.store(0, Relaxed),
            false => {}
        }
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_keep_their_sign_beside_flags() {
        for units in [0, 1, -1, 5, -7, 1 << 56, -(1 << 56)] {
            let shared = PoolState::new(units, SHARED);
            for seen in [shared, shared.queued(true), shared.percpu()] {
                assert_eq!(seen.units(), units, "{seen:?}");
                assert_eq!(
                    (seen.with_units(3).units(), seen.with_units(-3).units()),
                    (units + 3, units - 3)
                );
                assert_eq!(seen.with_units(3).is_queued(), seen.is_queued());
                assert_eq!(seen.with_units(3).is_shared(), seen.is_shared());
            }
        }
    }

    #[test]
    fn a_limit_that_is_begun_is_remembered() {
        let pool = Pool::new(100, 0);
        pool.begin_limit_change(-30, 70);
        assert_eq!((pool.add(2).units(), pool.unfinished_limit()), (72, Some(70)));
        pool.end_limit_change(5);
        assert_eq!((pool.load().units(), pool.unfinished_limit()), (77, None));
    }

    #[test]
    fn what_is_lent_is_gathered() {
        let pool = Pool::new(100, 0);
        assert!(pool.exchange(pool.load(), pool.load().percpu()));
        assert!(pool.lend(pool.load(), 3, 40));
        assert_eq!(pool.add(2).units(), 59);
        assert!(!pool.lend(PoolState::new(58, 0), 1, 1), "it has changed");
        assert_eq!(pool.collect_lent(|units, lent| units + lent), (59, 40));
        assert_eq!(pool.load(), PoolState::new(99, SHARED));
        assert_eq!(pool.collect_lent(|units, lent| units + lent), (99, 0));
    }
}

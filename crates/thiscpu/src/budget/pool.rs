//! The pool: the units that are in no lane, and the budget's mode.
//!
//! | first word | meaning |
//! |---|---|
//! | bits 0 and 1 | the mode |
//! | 0, `PERCPU` | per-CPU mode: lanes may hold units too |
//! | 1, `OPEN` | shared mode: no lane holds a unit, and any caller may take those here |
//! | 3, `QUEUED` | shared mode with waiters: the first gets the units here |
//! | 2, `CLOSED` | shared mode for good: no caller gets units any more |
//! | bits 2 to 63 | units, signed: negative while more are held than the limit allows |
//!
//! The second word counts the units lent to lanes since the pool left shared mode; in shared mode
//! it is 0, with one exception. Lending units and collecting them change both words by one 16-byte
//! exchange. All other operations leave the lent units alone, and change only the first word.
//!
//! The exception is a change of the limit in shared mode: the second word is then `2 * limit + 1`,
//! for the limit that the units belong to. That word is never 0, and a child that is forked in
//! between finds the limit there.
//!
//! A refusal rests on the first word: one load shows that no lane holds a unit, and how few units
//! the pool has.

use super::calls::PlentifulCalls;
use crate::sys::atomic::{AtomicU32, AtomicU64};
use crate::sys::double::Double;

const MODE: u64 = 3;
const PERCPU: u64 = 0;
const OPEN: u64 = 1;
const CLOSED: u64 = 2;
const QUEUED: u64 = 3;
const UNIT: i64 = 1 << 2;

/// The first word of a pool, as loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PoolState(u64);

/// The pool.
///
/// The pool has its own cache line. In shared mode each call changes the pool, but the gate, which
/// each call loads first, should stay in every CPU's cache.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Pool {
    words: Double,
    pub(super) calls: PlentifulCalls,
    /// 1 once an excess was reported.
    pub(super) is_reported: AtomicU32,
    /// The units that were released but not held, as far as they were found.
    pub(super) over_released: AtomicU64,
}

impl PoolState {
    const fn new(units: i64, mode: u64) -> PoolState {
        PoolState((units * UNIT) as u64 | mode)
    }

    /// Returns the units in the pool; negative while more are held than the limit allows.
    pub(super) fn units(self) -> i64 {
        // An arithmetic shift: it removes the mode and keeps the sign.
        self.0 as i64 >> UNIT.trailing_zeros()
    }

    /// Returns whether no lane holds a unit.
    pub(super) fn is_shared(self) -> bool {
        self.0 & MODE != PERCPU
    }

    /// Returns whether any caller may take the units here, and no lane holds one.
    pub(super) fn is_open(self) -> bool {
        self.0 & MODE == OPEN
    }

    pub(super) fn is_queued(self) -> bool {
        self.0 & MODE == QUEUED
    }

    pub(super) fn is_closed(self) -> bool {
        self.0 & MODE == CLOSED
    }

    /// Returns the units that any caller may take in shared mode.
    ///
    /// There are none while there are waiters, and none of a closed budget.
    pub(super) fn available(self) -> u64 {
        match self.is_open() {
            true => self.units().max(0) as u64,
            false => 0,
        }
    }

    /// Returns the state with `units` more (or fewer) units, in the same mode.
    pub(super) fn with_units(self, units: i64) -> PoolState {
        PoolState(self.0.wrapping_add((units * UNIT) as u64))
    }

    /// Returns the state in per-CPU mode.
    pub(super) fn percpu(self) -> PoolState {
        PoolState::new(self.units(), PERCPU)
    }

    /// Returns the state in shared mode, with or without waiters. A closed pool stays closed.
    pub(super) fn shared(self, has_waiters: bool) -> PoolState {
        match () {
            () if self.is_closed() => self,
            () if has_waiters => PoolState::new(self.units(), QUEUED),
            () => PoolState::new(self.units(), OPEN),
        }
    }

    /// Returns the closed state.
    pub(super) fn closed(self) -> PoolState {
        PoolState::new(self.units(), CLOSED)
    }
}

impl Pool {
    /// Creates a pool in shared mode that holds all of `limit`.
    pub(super) const fn new(limit: i64, plentiful_calls: u32) -> Pool {
        Pool {
            words: Double::new([PoolState::new(limit, OPEN).0, 0]),
            calls: PlentifulCalls::new(plentiful_calls),
            is_reported: AtomicU32::new(0),
            over_released: AtomicU64::new(0),
        }
    }

    /// Loads the first word.
    ///
    /// Acquire: pairs with the release half of every exchange and addition here. A thread that sees
    /// units of a raised limit then loads that limit. A thread that takes units sees what preceded
    /// their release.
    #[inline]
    pub(super) fn load(&self) -> PoolState {
        PoolState(self.words.first())
    }

    /// Replaces `old` by `new`; returns `false` if the word has changed. Acquire and release.
    #[inline]
    pub(super) fn exchange(&self, old: PoolState, new: PoolState) -> bool {
        self.words.exchange_first(old.0, new.0)
    }

    /// Adds `units` and returns the new state. Acquire and release.
    ///
    /// Wait-free where the processor adds in one step. `sys::double` argues why 8-byte additions
    /// and 16-byte exchanges may mix.
    #[inline]
    pub(super) fn add(&self, units: i64) -> PoolState {
        PoolState(self.words.add_first((units * UNIT) as u64)).with_units(units)
    }

    /// Applies `change` to the first word and returns the old state. Lock-free.
    pub(super) fn update(&self, change: impl Fn(PoolState) -> PoolState) -> PoolState {
        loop {
            let now = self.load();
            if self.exchange(now, change(now)) {
                return now;
            }
        }
    }

    /// Returns how many units were lent since per-CPU mode began, including units taken since.
    pub(super) fn lent(&self) -> i64 {
        self.words.load()[1] as i64
    }

    /// Takes `units` from a pool in per-CPU mode, and counts `batch` more as lent.
    ///
    /// Returns `false` if the pool has changed since `now` was loaded.
    pub(super) fn lend(&self, now: PoolState, units: i64, batch: i64) -> bool {
        debug_assert!(!now.is_shared());
        let [_, lent] = self.words.load();
        // If the two words were never in the pool together, the exchange fails.
        self.words.exchange([now.0, lent], [now.with_units(-units - batch).0, lent + batch as u64])
    }

    /// Ends per-CPU mode. `total` computes the new units from those in the pool and those lent.
    ///
    /// Returns the units that were in the pool and the units that were lent.
    pub(super) fn collect_lent(&self, total: impl Fn(i64, i64) -> i64) -> (i64, i64) {
        loop {
            let [first, second] = self.words.load();
            let (units, lent) = (PoolState(first).units(), second as i64);
            let shared = PoolState::new(total(units, lent), OPEN);
            if self.words.exchange([first, second], [shared.0, 0]) {
                return (units, lent);
            }
        }
    }

    /// Adds `units` in shared mode, and records that the pool's units now belong to `limit`.
    pub(super) fn begin_limit_change(&self, units: i64, limit: i64) {
        self.change_both(units, limit as u64 * 2 + 1);
    }

    /// Adds `units` in shared mode; the pool's units now belong to the stored limit.
    pub(super) fn end_limit_change(&self, units: i64) {
        self.change_both(units, 0);
    }

    fn change_both(&self, units: i64, new_second: u64) {
        loop {
            let [first, second] = self.words.load();
            let new = [PoolState(first).with_units(units).0, new_second];
            if self.words.exchange([first, second], new) {
                return;
            }
        }
    }

    /// Returns the limit that the pool's units belong to, if a change of the limit has not ended.
    pub(super) fn unfinished_limit(&self) -> Option<i64> {
        let [first, second] = self.words.load();
        (PoolState(first).is_shared() && second != 0).then_some((second / 2) as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_state_keeps_sign_beside_mode() {
        for units in [0, 1, -1, 5, -7, 1 << 56, -(1 << 56)] {
            let shared = PoolState::new(units, OPEN);
            for state in [shared, shared.shared(true), shared.percpu(), shared.closed()] {
                let (more, fewer) = (state.with_units(3), state.with_units(-3));
                assert_eq!(state.units(), units, "{state:?}");
                assert_eq!((more.units(), fewer.units()), (units + 3, units - 3));
                for mode in [
                    PoolState::is_shared,
                    PoolState::is_open,
                    PoolState::is_queued,
                    PoolState::is_closed,
                ] {
                    assert_eq!((mode(more), mode(fewer)), (mode(state), mode(state)));
                }
            }
        }
    }

    #[test]
    fn closed_pool_stays_closed() {
        let closed = PoolState::new(7, QUEUED).closed();
        assert!(closed.is_shared() && !closed.is_open() && !closed.is_queued());
        assert_eq!((closed.units(), closed.available()), (7, 0));
        assert_eq!((closed.shared(false), closed.shared(true)), (closed, closed));
    }

    #[test]
    fn pool_remembers_limit_while_it_changes() {
        let pool = Pool::new(100, 0);
        pool.begin_limit_change(-30, 70);
        assert_eq!((pool.add(2).units(), pool.unfinished_limit()), (72, Some(70)));
        pool.end_limit_change(5);
        assert_eq!((pool.load().units(), pool.unfinished_limit()), (77, None));
    }

    #[test]
    fn pool_collects_lent_units() {
        let pool = Pool::new(100, 0);
        assert!(pool.exchange(pool.load(), pool.load().percpu()));
        assert!(pool.lend(pool.load(), 3, 40));
        assert_eq!(pool.add(2).units(), 59);
        assert!(!pool.lend(PoolState::new(58, 0), 1, 1), "the pool has changed");
        assert_eq!(pool.collect_lent(|units, lent| units + lent), (59, 40));
        assert_eq!(pool.load(), PoolState::new(99, OPEN));
        assert_eq!(pool.collect_lent(|units, lent| units + lent), (99, 0));
    }
}

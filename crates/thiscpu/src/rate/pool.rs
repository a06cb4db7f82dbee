//! The pool: the bucket that all lanes share, and the rate's mode, in one pair of words.
//!
//! | bits | meaning |
//! |---|---|
//! | first word, and 0 to 39 of the second | the origin of the bucket, see [`super::terms`] |
//! | second word, 40 and 41 | the mode |
//! | 0, `PERCPU` | per-CPU mode: lanes may hold units too |
//! | 1, `OPEN` | shared mode: no lane holds a unit, and any caller may take those here |
//! | 3, `QUEUED` | shared mode with waiters: the first gets the units here |
//! | 2, `CLOSED` | shared mode for good: no caller gets units any more |
//! | 42 | flips with each loan, so that a child of `fork` can finish one |
//! | 43 | which of two slots has the terms |
//! | 44 to 63 | the epoch: counts changes of mode or terms, and units that came back |
//!
//! Within an epoch the origin never falls, because calls only take. Whatever returns units to the
//! pool begins an epoch. So an exchange never takes one state for another, unless a thread sleeps
//! over exactly 2^20 changes of mode, or a multiple, and the origin is the one it knew again.

use super::terms::Terms;
use crate::sys::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};
use crate::sys::double::Double;

const PERCPU: u64 = 0;
const OPEN: u64 = 1;
const CLOSED: u64 = 2;
const QUEUED: u64 = 3;

const FLAGS_AT: u32 = 40;
const MODE: u64 = 3 << FLAGS_AT;
const LOAN: u64 = 1 << 42;
const SLOT: u64 = 1 << 43;
const EPOCH: u64 = 1 << 44;

/// A pool's pair of words, as loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State([u64; 2]);

impl State {
    pub(super) fn origin(self) -> i128 {
        let [first, second] = self.0;
        // The shift to the left drops the flags; the arithmetic shift back keeps the sign.
        let word = (u128::from(second) << 64 | u128::from(first)) << (64 - FLAGS_AT);
        word as i128 >> (64 - FLAGS_AT)
    }

    fn mode(self) -> u64 {
        (self.0[1] & MODE) >> FLAGS_AT
    }

    /// Returns whether no lane holds a unit.
    pub(super) fn is_shared(self) -> bool {
        self.mode() != PERCPU
    }

    /// Returns whether any caller may take the units here, and no lane holds one.
    pub(super) fn is_open(self) -> bool {
        self.mode() == OPEN
    }

    pub(super) fn is_queued(self) -> bool {
        self.mode() == QUEUED
    }

    pub(super) fn is_closed(self) -> bool {
        self.mode() == CLOSED
    }

    /// Returns whether the number of loans is odd.
    pub(super) fn loan_bit(self) -> bool {
        self.0[1] & LOAN != 0
    }

    fn slot(self) -> usize {
        usize::from(self.0[1] & SLOT != 0)
    }

    /// Returns the state with another origin, in the same epoch.
    pub(super) fn with_origin(self, origin: i128) -> State {
        debug_assert!((-1 << 103..1 << 103).contains(&origin));
        let flags = self.0[1] >> FLAGS_AT << FLAGS_AT;
        State([origin as u64, (origin >> 64) as u64 & ((1 << FLAGS_AT) - 1) | flags])
    }

    /// Returns the state with one more loan.
    pub(super) fn with_loan(self) -> State {
        State([self.0[0], self.0[1] ^ LOAN])
    }

    fn with_mode(self, mode: u64) -> State {
        if mode == self.mode() {
            return self;
        }
        let flags = (self.0[1] & !MODE | mode << FLAGS_AT).wrapping_add(EPOCH);
        State([self.0[0], flags])
    }

    /// Returns the state in per-CPU mode.
    pub(super) fn percpu(self) -> State {
        self.with_mode(PERCPU)
    }

    /// Returns the state in shared mode, with or without waiters. A closed pool stays closed.
    pub(super) fn shared(self, has_waiters: bool) -> State {
        match () {
            () if self.is_closed() => self,
            () if has_waiters => self.with_mode(QUEUED),
            () => self.with_mode(OPEN),
        }
    }

    /// Returns the state in a new epoch, in which the origin may be lower.
    pub(super) fn next_epoch(self) -> State {
        State([self.0[0], self.0[1].wrapping_add(EPOCH)])
    }

    /// Returns the closed state.
    pub(super) fn closed(self) -> State {
        self.with_mode(CLOSED)
    }

    /// Returns the state with the terms of the other slot.
    fn other_slot(self) -> State {
        State([self.0[0], (self.0[1] ^ SLOT).wrapping_add(EPOCH)])
    }
}

/// The terms in one slot.
#[derive(Debug)]
struct Slot {
    per_ns: AtomicU64,
    unit: AtomicU64,
    burst: AtomicU64,
    share: AtomicU64,
}

impl Slot {
    const fn new(terms: &Terms) -> Slot {
        Slot {
            per_ns: AtomicU64::new(terms.per_ns),
            unit: AtomicU64::new(terms.unit),
            burst: AtomicU64::new(terms.burst),
            share: AtomicU64::new(terms.share),
        }
    }
}

/// The slots of a rate's terms, in a cache line that hardly ever changes.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Slots([Slot; 2]);

impl Slots {
    pub(super) const fn new(terms: &Terms) -> Slots {
        Slots([Slot::new(terms), Slot::new(terms)])
    }

    fn load(&self, slot: usize) -> Terms {
        let slot = &self.0[slot];
        // Relaxed: the fence in `Pool::load` comes after, and the caller then checks the epoch.
        Terms {
            per_ns: slot.per_ns.load(Relaxed),
            unit: slot.unit.load(Relaxed),
            burst: slot.burst.load(Relaxed),
            share: slot.share.load(Relaxed),
        }
    }

    fn store(&self, slot: usize, terms: &Terms) {
        // Release: pairs with the Acquire fence in `Pool::load`. A thread that loaded one of the
        // stores below then sees the exchange that took this slot out of use.
        fence(Release);
        let slot = &self.0[slot];
        slot.per_ns.store(terms.per_ns, Relaxed);
        slot.unit.store(terms.unit, Relaxed);
        slot.burst.store(terms.burst, Relaxed);
        slot.share.store(terms.share, Relaxed);
    }
}

/// The pool.
#[derive(Debug)]
pub(super) struct Pool(Double);

impl Pool {
    /// Creates a pool in shared mode with a full bucket.
    pub(super) const fn new(terms: &Terms) -> Pool {
        let origin = terms.full();
        let second = (origin >> 64) as u64 & ((1 << FLAGS_AT) - 1) | OPEN << FLAGS_AT;
        Pool(Double::new([origin as u64, second]))
    }

    /// Loads the state and its terms, which were in force together at one instant of the call.
    #[inline]
    pub(super) fn load(&self, slots: &Slots) -> (State, Terms) {
        loop {
            let second = self.0.second();
            let first = self.0.first();
            let state = State([first, second]);
            let terms = slots.load(state.slot());
            // Acquire: pairs with the Release in `Slots::store`. If the terms are newer than the
            // epoch, the next load shows a later epoch.
            fence(Acquire);
            // Within an epoch the origin does not fall. So the upper half of it was the one loaded
            // at both times also in between, when the lower half was loaded.
            if self.0.second() == second {
                return (state, terms);
            }
        }
    }

    /// Loads the mode and the flags. The origin may be that of another instant.
    pub(super) fn load_mode(&self) -> State {
        State([0, self.0.second()])
    }

    /// Replaces `old` by `new`; returns `false` if the state has changed. Acquire and release.
    #[inline]
    pub(super) fn exchange(&self, old: State, new: State) -> bool {
        self.0.exchange(old.0, new.0)
    }

    /// Replaces `old` by a state with `terms` and `origin`. The caller holds the rate's lock.
    pub(super) fn exchange_terms(
        &self,
        slots: &Slots,
        old: State,
        terms: &Terms,
        origin: i128,
    ) -> bool {
        // No thread uses the other slot. One that loaded it in an earlier epoch starts over.
        slots.store(1 - old.slot(), terms);
        self.exchange(old, old.other_slot().with_origin(origin))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::rate::pace::Pace;

    #[test]
    fn state_keeps_origin_beside_flags() {
        let pool = Pool::new(&Terms::new(Pace::per_second(3), 5).unwrap());
        let terms = Terms::new(Pace::per_second(3), 5).unwrap();
        let (state, loaded) = pool.load(&Slots::new(&terms));
        assert_eq!((state.origin(), loaded), (terms.full(), terms));
        for origin in [0, 1, -1, 1 << 70, -(1 << 70), (1 << 103) - 1, -(1 << 103)] {
            let open = state.with_origin(origin);
            let states = [open, open.percpu(), open.closed(), open.shared(true), open.with_loan()];
            for state in states {
                assert_eq!(state.origin(), origin, "{state:?}");
                assert_eq!(state.with_origin(7).origin(), 7);
                assert_eq!(state.with_origin(7).mode(), state.mode());
                assert_eq!(state.other_slot().origin(), origin);
            }
            assert!(open.is_open() && !open.percpu().is_shared() && open.shared(true).is_queued());
            assert_eq!(open.closed().shared(true), open.closed());
            assert_eq!(open.shared(false), open);
            assert_ne!(open.percpu().shared(false), open, "each change begins an epoch");
        }
    }

    #[test]
    fn terms_change_with_the_pool() {
        let old = Terms::new(Pace::per_second(3), 5).unwrap();
        let new = Terms::new(Pace::per(9, Duration::from_nanos(2)), 700).unwrap();
        let (pool, slots) = (Pool::new(&old), Slots::new(&old));
        let (state, _) = pool.load(&slots);
        assert!(pool.exchange_terms(&slots, state, &new, -4));
        let (changed, terms) = pool.load(&slots);
        assert_eq!((changed.origin(), terms), (-4, new));
        assert!(!pool.exchange_terms(&slots, state, &old, 0), "the state is old");
    }
}

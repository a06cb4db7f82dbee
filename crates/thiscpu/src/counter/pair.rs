//! A count and its seal, side by side, so that one 16-byte compare-exchange changes both.
//!
//! Such a pair is the shared lane of a counter in each of its banks, and a lane of the atomic tier.
//! It stops adders without a fence: after a flip of the gate, the thread that flipped it seals the
//! pairs of the old bank, one by one. An adder's exchange fails on a sealed pair, and the adder
//! goes to the other bank.
//!
//! | seal | meaning |
//! |---|---|
//! | (nothing) | open: adders may change the count while the gate points at this bank |
//! | `SEALED` | frozen: only the holder of the lock changes it |
//! | `SHARED` | shared mode: open, and the count is the whole value; the gate is closed |
//! | `COMPARED` | with `SHARED`: a comparison happened since the adds were last counted |
//! | `MOVING` | a lane's window is moving: adders use the shared lane |
//!
//! ```text
//! first word     adds, or delta (16 bits, signed) | version (44 bits) | flags (4 bits)
//! second word    count (64 bits)
//! ```
//!
//! In shared mode, *adds* is the number of adds since the pair entered that mode. In a lane the
//! field is *delta*, a part of the count. An add whose delta fits exchanges only the first word,
//! which takes half of the time. All other changes of a lane exchange both words, move delta to the
//! second one, and increment the version.
//!
//! The version makes the exchange safe. An adder loads the first word, then the second, *then* the
//! gate, then exchanges. If the exchange succeeds, the pair had the same version all the while. So
//! it was open when the gate was seen pointing at it, and the second word belongs to the first. The
//! add takes effect at that load of the gate.

use crate::sys::double::Double;

const SEALED: u64 = 1;
const SHARED: u64 = 1 << 1;
const COMPARED: u64 = 1 << 2;
const MOVING: u64 = 1 << 3;
const FLAGS: u64 = 0xf;
const VERSION_ONE: u64 = 1 << 4;
/// The lowest bit of adds and of delta. In a model these words have 32 bits.
const ADDS_AT: u32 = if cfg!(thiscpu_model) { 16 } else { 48 };
const ADD_ONE: u64 = 1 << ADDS_AT;
const ADDS: u64 = !(ADD_ONE - 1);
const VERSION: u64 = !(ADDS | FLAGS);

/// Delta is less than this, and at least the negative of this.
const DELTA_END: i64 = if cfg!(thiscpu_model) { 1 << 6 } else { 1 << 15 };

/// The number of adds without a comparison after which a counter leaves shared mode.
///
/// They cost about what the fence cost that put the counter into shared mode. So a counter that is
/// compared now and then costs at most twice what the better mode would cost.
pub(crate) const SHARED_ADDS: u64 = 512;
/// The number of adds after which a new counter takes memory in the lanes.
const FIRST_ADDS: u64 = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seal(u64);

impl Seal {
    pub(crate) const OPEN: Seal = Seal(0);
    pub(crate) const SEALED: Seal = Seal(SEALED);
    /// The seal of a new counter, in shared mode.
    pub(crate) const SHARED: Seal = Seal(SHARED | ((SHARED_ADDS - FIRST_ADDS) * ADD_ONE));

    pub(crate) fn is_sealed(self) -> bool {
        self.0 & SEALED != 0
    }

    pub(crate) fn is_shared(self) -> bool {
        self.0 & SHARED != 0
    }

    pub(crate) fn is_compared(self) -> bool {
        self.0 & COMPARED != 0
    }

    /// Returns whether adders may change the count of a lane with this seal.
    pub(crate) fn is_open(self) -> bool {
        self.0 & FLAGS == 0
    }

    pub(crate) fn is_moving(self) -> bool {
        self.0 & MOVING != 0
    }

    /// Returns whether only adds in shared mode, and records of comparisons, lie between the two.
    fn is_same_version(self, other: Seal) -> bool {
        (self.0 ^ other.0) & !(ADDS | COMPARED) == 0
    }

    fn next_version(self, flags: u64) -> Seal {
        Seal((self.0.wrapping_add(VERSION_ONE) & VERSION) | flags)
    }

    pub(crate) fn sealed(self) -> Seal {
        self.next_version((self.0 & MOVING) | SEALED)
    }

    /// Returns the seal opened. A window that is moving still moves.
    pub(crate) fn opened(self) -> Seal {
        self.next_version(self.0 & MOVING)
    }

    pub(crate) fn shared(self) -> Seal {
        self.next_version(SHARED)
    }

    pub(crate) fn moving(self) -> Seal {
        self.next_version((self.0 & SEALED) | MOVING)
    }

    pub(crate) fn moved(self) -> Seal {
        self.next_version(self.0 & SEALED)
    }

    /// Returns the seal after a change of the count that is not an add in shared mode.
    fn changed(self) -> Seal {
        self.next_version(self.0 & FLAGS)
    }

    /// Returns the part of a lane's count that the seal holds.
    fn delta(self) -> i64 {
        self.0 as i64 >> ADDS_AT
    }

    pub(crate) fn compared(self) -> Seal {
        Seal(self.0 | COMPARED)
    }

    /// Returns the seal after one more add, and whether it is time to leave shared mode.
    pub(crate) fn added(self) -> (Seal, bool) {
        if !self.is_shared() {
            return (self.changed(), false);
        }
        match self.0 / ADD_ONE + 1 {
            adds if adds < SHARED_ADDS => (Seal(self.0 + ADD_ONE), false),
            _ => (Seal(self.0 & !(ADDS | COMPARED)), !self.is_compared()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sealed {
    pub(crate) count: i64,
    pub(crate) seal: Seal,
}

impl Sealed {
    const fn to_words(self) -> [u64; 2] {
        [self.seal.0, self.count as u64]
    }

    /// Returns the whole count: in a lane, the seal holds a part of it.
    #[inline]
    pub(crate) fn total(self) -> i64 {
        let delta = if self.seal.is_shared() { 0 } else { self.seal.delta() };
        self.count.wrapping_add(delta)
    }

    /// Returns the pair with its whole count in the second word, and another seal.
    pub(crate) fn with(self, seal: Seal) -> Sealed {
        Sealed { count: self.total(), seal }
    }
}

#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Pair(Double);

impl Pair {
    pub(crate) const fn new(seal: Seal) -> Self {
        Pair(Double::new(Sealed { count: 0, seal }.to_words()))
    }

    /// Loads the seal, and then the count, which may be newer.
    ///
    /// That is enough: an exchange with a mixture fails, and a frozen pair does not change.
    /// Acquire: nothing that follows in program order happens before it.
    #[inline]
    pub(crate) fn load(&self) -> Sealed {
        let (seal, count) = (self.0.first(), self.0.second());
        Sealed { count: count as i64, seal: Seal(seal) }
    }

    /// Loads the count of one instant, if the pair is in shared mode.
    #[inline]
    pub(crate) fn load_shared(&self) -> Option<Sealed> {
        loop {
            let now = self.load();
            if !now.seal.is_shared() {
                return None;
            }
            // The pair was in shared mode from the first load of its seal to the second, so the
            // count was the value when it was loaded.
            if self.load().seal.is_same_version(now.seal) {
                return Some(now);
            }
        }
    }

    /// Replaces `old`, as it was loaded, by `new`.
    ///
    /// Acquire and release: a thread that loads the result sees what this thread did before. The
    /// exchange does not happen before the adder's load of the gate.
    #[inline]
    pub(crate) fn exchange(&self, old: Sealed, new: Sealed) -> bool {
        self.0.exchange(old.to_words(), new.to_words())
    }

    /// Adds to the count of a lane's pair, loaded as `old`, by an exchange of the first word.
    ///
    /// Returns false if delta has no room, or if the first word has changed. Orders as
    /// [`exchange`](Self::exchange).
    #[inline(always)]
    pub(crate) fn add_small(&self, old: Sealed, n: i64) -> bool {
        let delta = old.seal.delta().wrapping_add(n);
        let new = old.seal.0.wrapping_add((n as u64) << ADDS_AT);
        (-DELTA_END..DELTA_END).contains(&delta) && self.0.exchange_first(old.seal.0, new)
    }

    /// Adds to the count of a lane's pair, loaded as `old`, and moves delta to the second word.
    ///
    /// Returns false if the pair has changed.
    pub(crate) fn add_saved(&self, old: Sealed, n: i64) -> bool {
        let count = old.total().wrapping_add(n);
        self.exchange(old, Sealed { count, seal: old.seal.changed() })
    }

    /// Applies `change` to the pair and returns the old one. Lock-free: it retries.
    pub(crate) fn update(&self, mut change: impl FnMut(Sealed) -> Sealed) -> Sealed {
        loop {
            let now = self.load();
            if self.exchange(now, change(now)) {
                return now;
            }
        }
    }

    /// Freezes the pair unless it is frozen already.
    pub(crate) fn freeze(&self) {
        if !self.load().seal.is_sealed() {
            self.update(|now| now.with(now.seal.sealed()));
        }
    }

    pub(crate) fn open(&self) {
        self.update(|now| now.with(now.seal.opened()));
    }
}

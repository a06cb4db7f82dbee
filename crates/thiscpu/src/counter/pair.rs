//! A count and its seal, changed together by one 16-byte compare-exchange.
//!
//! Such a pair is the slow lane of a counter in each of its banks, and a lane of the atomic tier. It
//! stops adders without a fence: whoever flips a gate then seals the pairs of the bank that was
//! left, one by one. An adder's exchange fails on a sealed pair, and it goes to the other bank.
//!
//! | seal | meaning |
//! |---|---|
//! | (nothing) | open: adders may change the count while the gate points at this bank |
//! | `SEALED` | frozen: only the holder of the lock changes it |
//! | `TIGHT` | open, and the count is the counter's whole value; the gate is closed |
//! | `WANTED` | with `TIGHT`: somebody has compared since the adds were last counted |
//! | `RAISING` | a lane's window is being changed: adders use the slow lane |
//!
//! Beside the flags there are the number of adds since the pair became tight, and a version that
//! every other change increments. The version makes the exchange safe: an adder looks at the pair,
//! *then* at the gate, then exchanges; if the exchange succeeds, the pair was open in this very
//! epoch when the gate was seen pointing at it, which is where the add takes effect.

use crate::section::double::Double;

const SEALED: u64 = 1;
const TIGHT: u64 = 1 << 1;
const WANTED: u64 = 1 << 2;
const RAISING: u64 = 1 << 3;
const FLAGS: u64 = 0xf;
const ADD_ONE: u64 = 1 << 4;
const ADDS_BITS: u32 = 10;
const ADDS: u64 = ((1 << ADDS_BITS) - 1) * ADD_ONE;
const VERSION_ONE: u64 = 1 << (4 + ADDS_BITS);

/// After so many adds with no comparison among them a tight counter is opened. They cost about what
/// the fence costs that made it tight, so that a counter which is compared now and then loses at
/// most twice what the better mode would have cost it.
pub(crate) const TIGHT_ADDS: u64 = 512;
/// After so many adds a new counter takes memory in the lanes.
const FIRST_ADDS: u64 = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seal(u64);

impl Seal {
    pub(crate) const OPEN: Seal = Seal(0);
    pub(crate) const SEALED: Seal = Seal(SEALED);
    /// Of a counter that was never used.
    pub(crate) const TIGHT: Seal = Seal(TIGHT | ((TIGHT_ADDS - FIRST_ADDS) * ADD_ONE));

    pub(crate) fn is_sealed(self) -> bool {
        self.0 & SEALED != 0
    }

    pub(crate) fn is_tight(self) -> bool {
        self.0 & TIGHT != 0
    }

    pub(crate) fn is_wanted(self) -> bool {
        self.0 & WANTED != 0
    }

    pub(crate) fn is_raising(self) -> bool {
        self.0 & RAISING != 0
    }

    /// Whether nothing but adds to a tight pair, and notes on them, lies between the two.
    fn is_same_epoch(self, other: Seal) -> bool {
        (self.0 ^ other.0) & !(ADDS | WANTED) == 0
    }

    fn next_version(self, flags: u64) -> Seal {
        Seal((self.0 & !(FLAGS | ADDS)).wrapping_add(VERSION_ONE) | flags)
    }

    pub(crate) fn sealed(self) -> Seal {
        self.next_version((self.0 & RAISING) | SEALED)
    }

    /// Open; a window that is being changed stays so.
    pub(crate) fn opened(self) -> Seal {
        self.next_version(self.0 & RAISING)
    }

    pub(crate) fn tight(self) -> Seal {
        self.next_version(TIGHT)
    }

    pub(crate) fn raising(self) -> Seal {
        self.next_version((self.0 & SEALED) | RAISING)
    }

    pub(crate) fn raised(self) -> Seal {
        self.next_version(self.0 & SEALED)
    }

    /// The seal after one more change of the count that is not an add in tight mode.
    fn changed(self) -> Seal {
        self.next_version(self.0 & FLAGS)
    }

    pub(crate) fn wanted(self) -> Seal {
        Seal(self.0 | WANTED)
    }

    /// The seal after one more add, and whether it is time to open the counter.
    pub(crate) fn added(self) -> (Seal, bool) {
        if !self.is_tight() {
            return (self.changed(), false);
        }
        match (self.0 & ADDS) / ADD_ONE + 1 {
            adds if adds < TIGHT_ADDS => (Seal(self.0 + ADD_ONE), false),
            _ => (Seal(self.0 & !(ADDS | WANTED)), !self.is_wanted()),
        }
    }
}

/// A count with its seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sealed {
    pub(crate) count: i64,
    pub(crate) seal: Seal,
}

impl Sealed {
    const fn to_words(self) -> [u64; 2] {
        [self.count as u64, self.seal.0]
    }
}

#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Pair(Double);

impl Pair {
    pub(crate) const fn new(seal: Seal) -> Self {
        Pair(Double::new(Sealed { count: 0, seal }.to_words()))
    }

    /// The seal, and then the count, which may be newer: an exchange with a mixture fails, and a
    /// frozen pair does not change. Nothing that follows is done before it.
    #[inline]
    pub(crate) fn load(&self) -> Sealed {
        let [count, seal] = self.0.load();
        Sealed { count: count as i64, seal: Seal(seal) }
    }

    /// The count of one instant, if the pair is tight.
    #[inline]
    pub(crate) fn load_tight(&self) -> Option<Sealed> {
        loop {
            let now = self.load();
            if !now.seal.is_tight() {
                return None;
            }
            // The pair was tight from the first look at its seal to the second, so the count was
            // the value when it was loaded.
            if self.load().seal.is_same_epoch(now.seal) {
                return Some(now);
            }
        }
    }

    /// Replaces `old`, as it was loaded, by `new`. Acquire and release: what the changer did before
    /// is visible to whoever loads the result, and the exchange is not done before the adder's look at
    /// the gate.
    #[inline]
    pub(crate) fn exchange(&self, old: Sealed, new: Sealed) -> bool {
        self.0.exchange(old.to_words(), new.to_words())
    }

    /// Changes the pair by `change` and returns what it held before. Lock-free: another thread's
    /// change makes it try again.
    pub(crate) fn update(&self, mut change: impl FnMut(Sealed) -> Sealed) -> Sealed {
        loop {
            let now = self.load();
            if self.exchange(now, change(now)) {
                return now;
            }
        }
    }

    /// Freezes the pair if it is not frozen yet, and returns its count.
    pub(crate) fn freeze(&self) -> i64 {
        let now = self.load();
        if now.seal.is_sealed() {
            return now.count;
        }
        self.update(|now| Sealed { seal: now.seal.sealed(), ..now }).count
    }

    pub(crate) fn open(&self) {
        self.update(|now| Sealed { seal: now.seal.opened(), ..now });
    }
}

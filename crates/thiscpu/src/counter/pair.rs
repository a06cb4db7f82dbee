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
//! | `SHARED` | open, and the count is the counter's whole value; the gate is closed |
//! | `COMPARED` | with `SHARED`: somebody has compared since the adds were last counted |
//! | `MOVING` | a lane's window is being changed: adders use the slow lane |
//!
//! Beside the flags there are the number of adds since the pair became tight, and a version that
//! every other change increments. The version makes the exchange safe: an adder looks at the pair,
//! *then* at the gate, then exchanges; if the exchange succeeds, the pair was open in this very
//! epoch when the gate was seen pointing at it, which is where the add takes effect.

use crate::sys::double::Double;

const SEALED: u64 = 1;
const SHARED: u64 = 1 << 1;
const COMPARED: u64 = 1 << 2;
const MOVING: u64 = 1 << 3;
const FLAGS: u64 = 0xf;
const ADD_ONE: u64 = 1 << 4;
const ADDS_BITS: u32 = 10;
const ADDS: u64 = ((1 << ADDS_BITS) - 1) * ADD_ONE;
const VERSION_ONE: u64 = 1 << (4 + ADDS_BITS);

/// After so many adds with no comparison among them a tight counter is opened. They cost about what
/// the fence costs that made it tight, so that a counter which is compared now and then loses at
/// most twice what the better mode would have cost it.
pub(crate) const SHARED_ADDS: u64 = 512;
/// After so many adds a new counter takes memory in the lanes.
const FIRST_ADDS: u64 = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seal(u64);

impl Seal {
    pub(crate) const OPEN: Seal = Seal(0);
    pub(crate) const SEALED: Seal = Seal(SEALED);
    /// Of a counter that was never used.
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

    pub(crate) fn is_moving(self) -> bool {
        self.0 & MOVING != 0
    }

    /// Whether nothing but adds to a tight pair, and notes on them, lies between the two.
    fn is_same_version(self, other: Seal) -> bool {
        (self.0 ^ other.0) & !(ADDS | COMPARED) == 0
    }

    fn next_version(self, flags: u64) -> Seal {
        Seal((self.0 & !(FLAGS | ADDS)).wrapping_add(VERSION_ONE) | flags)
    }

    pub(crate) fn sealed(self) -> Seal {
        self.next_version((self.0 & MOVING) | SEALED)
    }

    /// Open; a window that is being changed stays so.
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

    /// The seal after one more change of the count that is not an add in tight mode.
    fn changed(self) -> Seal {
        self.next_version(self.0 & FLAGS)
    }

    pub(crate) fn compared(self) -> Seal {
        Seal(self.0 | COMPARED)
    }

    /// The seal after one more add, and whether it is time to open the counter.
    pub(crate) fn added(self) -> (Seal, bool) {
        if !self.is_shared() {
            return (self.changed(), false);
        }
        match (self.0 & ADDS) / ADD_ONE + 1 {
            adds if adds < SHARED_ADDS => (Seal(self.0 + ADD_ONE), false),
            _ => (Seal(self.0 & !(ADDS | COMPARED)), !self.is_compared()),
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
    pub(crate) fn load_shared(&self) -> Option<Sealed> {
        loop {
            let now = self.load();
            if !now.seal.is_shared() {
                return None;
            }
            // The pair was tight from the first look at its seal to the second, so the count was
            // the value when it was loaded.
            if self.load().seal.is_same_version(now.seal) {
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

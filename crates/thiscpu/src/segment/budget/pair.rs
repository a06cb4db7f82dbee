//! A pair: the units of one participant in one lane.
//!
//! ```text
//! first    held (32 bits, signed) | open (1 bit) | credit (31 bits)
//! second   version (32 bits) | out (32 bits)
//! ```
//!
//! Threads of the participant change the first word, while the pair is open. Operations of the pool
//! change both words, and stamp the pair with the operation's version. A pair of zeros is closed
//! and empty.
//!
//! *Held* is what callers acquired in this lane, less what they released here. They may acquire on
//! one CPU and release on another all the time, so held wraps around. Only sums over all pairs of
//! a participant have a meaning, and they are correct modulo 2^32.

use super::pool::{Kind, Mode, State, UNITS_MAX, VERSION_BITS};
use crate::sys::double::Double;

const HELD_AT: u32 = if cfg!(thiscpu_model) { 16 } else { 32 };
const OPEN: u64 = 1 << (HELD_AT - 1);
const CREDIT: u64 = OPEN - 1;
const OUT_BITS: u32 = if cfg!(thiscpu_model) { 15 } else { 32 };

/// The most units that one addition releases.
///
/// A pair has room for as many as hundreds of threads can release at once, whether they hold them
/// or not, before the first of them brings the excess to the pool.
const RELEASE_MAX: u64 = if cfg!(thiscpu_model) { UNITS_MAX / 2 } else { 1 << 22 };

/// The result of a release to a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Released {
    /// The units are credit of the open pair.
    Done,
    /// The pair is closed: nothing has happened.
    Closed,
    /// The pair was closed, or has more credit than any budget: a pull must follow.
    Stray,
}

/// The 16 bytes of a pair.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Pair(Double);

/// The first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct First(u64);

impl First {
    fn new(held: i64, open: u64, credit: u64) -> First {
        First((held << HELD_AT) as u64 | open | credit & CREDIT)
    }

    pub(super) fn held(self) -> i64 {
        self.0 as i64 >> HELD_AT
    }

    pub(super) fn credit(self) -> u64 {
        self.0 & CREDIT
    }

    pub(super) fn is_open(self) -> bool {
        self.0 & OPEN != 0
    }

    /// Returns whether the pair is open and has credit for `n` units.
    ///
    /// One comparison checks both, because the bit of open pairs is next to the credit.
    #[inline(always)]
    fn has(self, n: u64) -> bool {
        n <= CREDIT && self.0 & (OPEN | CREDIT) >= OPEN + n
    }

    /// Returns whether the pair is closed and empty, and no units are held.
    pub(super) fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Returns whether the pair has units that its participant must bring to the pool.
    ///
    /// They are of a release that met a closed pair. Or they are more than any limit, by an error
    /// of the program, and could soon reach other bits.
    pub(super) fn has_stray_units(self) -> bool {
        !self.is_open() && self.credit() != 0 || self.credit() > CREDIT / 2
    }

    /// Returns whether a recall must pull the pair.
    pub(super) fn has_credit(self) -> bool {
        self.0 & (OPEN | CREDIT) != 0
    }

    /// Returns all units of the pair; a part of a sum modulo 2^32.
    pub(super) fn units(self) -> i32 {
        (self.held() as i32).wrapping_add(self.credit() as i32)
    }
}

/// Both words; two loads may have got them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words([u64; 2]);

impl Words {
    pub(super) fn first(self) -> First {
        First(self.0[0])
    }

    /// Returns whether the pair has the stamp of an operation, which was then applied.
    pub(super) fn is_stamped(self, by: State) -> bool {
        self.0[1] >> OUT_BITS == by.version()
    }

    /// Returns whether both have the stamp of one operation.
    #[cfg(not(thiscpu_model))]
    pub(super) fn has_stamp_of(self, other: Words) -> bool {
        self.0[1] == other.0[1]
    }

    /// Returns the units that a pull took out.
    pub(super) fn out(self) -> u64 {
        self.0[1] & ((1 << OUT_BITS) - 1)
    }

    /// Returns the pair after the operation of a state of the pool.
    pub(super) fn after(self, state: State) -> Words {
        const { assert!(VERSION_BITS + OUT_BITS <= 64) };
        let (held, credit) = (self.first().held(), self.first().credit());
        let amount = state.amount() as i64;
        let open = match state.mode() {
            Mode::PerCpu => OPEN,
            _ => self.0[0] & OPEN,
        };
        let first = match state.kind() {
            Kind::Take => First::new(held + amount, open, credit + state.batch()),
            Kind::Give => First::new(held - amount, open, credit),
            Kind::Grant => First::new(held + amount, self.0[0] & OPEN, credit),
            Kind::Pull => First::new(held, 0, 0),
            _ => First(0),
        };
        let out = if state.kind() == Kind::Pull { credit } else { 0 };
        Words([first.0, state.version() << OUT_BITS | out])
    }
}

impl Pair {
    /// Returns a pair as zeroed memory is: closed and empty.
    #[cfg(any(thiscpu_model, test))]
    pub(crate) const fn new() -> Pair {
        Pair(Double::new([0, 0]))
    }

    /// Loads the second word, then the first.
    pub(super) fn load(&self) -> Words {
        Words(self.0.load())
    }

    #[inline(always)]
    pub(super) fn first(&self) -> First {
        First(self.0.first())
    }

    /// Applies an operation, unless the pair has changed.
    pub(super) fn exchange(&self, from: Words, to: Words) -> bool {
        self.0.exchange(from.0, to.0)
    }

    /// Acquires `n` units, if the pair is open and has the credit.
    ///
    /// One exchange of the first word, which is the commit. Not an addition, because an overdraw
    /// would hide free units from a refusal.
    #[inline(always)]
    pub(crate) fn acquire(&self, n: u64) -> bool {
        loop {
            let old = self.first();
            if !old.has(n) {
                return false;
            }
            let new = old.0.wrapping_add(n << HELD_AT).wrapping_sub(n);
            // AcqRel: pairs with the addition in `release`, so an acquire sees what preceded the
            // release of its units.
            if self.0.exchange_first(old.0, new) {
                return true;
            }
        }
    }

    /// Releases `n` units to the pair, if it is open.
    ///
    /// One addition to the first word, which is the commit if its old value was open. If `looks`,
    /// it adds nothing to a pair that is already closed. A load from a word that a locked
    /// instruction has just changed waits for it, and delays the next one.
    ///
    /// Returns `Closed`, and does nothing, if `n` is so large that it might not fit into the pair.
    #[inline(always)]
    pub(crate) fn release(&self, n: u64, looks: bool) -> Released {
        if n > RELEASE_MAX || looks && !self.first().is_open() {
            return Released::Closed;
        }
        let old = First(self.0.add_first(n.wrapping_sub(n << HELD_AT)));
        match old.is_open() && old.credit() <= CREDIT / 2 {
            true => Released::Done,
            false => Released::Stray,
        }
    }
}

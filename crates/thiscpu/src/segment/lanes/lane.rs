//! A lane of a shared counter: a count that anybody can add to, and anybody can seal.
//!
//! A lane has two banks, each a pair of words that the processor changes together:
//!
//! ```text
//! first    delta (40 bits, signed) | epoch (23 bits) | sealed (1 bit)
//! second   saved (64 bits)
//! ```
//!
//! | bank | its count | who may change it |
//! |---|---|---|
//! | open | saved + delta | adders: an addition to the first word |
//! | sealed | saved; delta is void | an adder of a later epoch, which opens it |
//!
//! An adder adds before it knows whether the bank is open. The old value of the word tells. If the
//! bank was sealed, the addition had no effect: opening the bank drops the void delta.
//!
//! The bank's epoch is that of its last opening or seal, so each of them changes the first word.
//! Who opens or seals a bank loads it, then looks whether the epoch is still current, and then
//! exchanges. If the epoch ends between the look and the exchange, the seal of that epoch has
//! changed the word, and the exchange fails.

use crate::sys::atomic::{AtomicU64, Ordering::Acquire};
use crate::sys::double::Double;

const SEALED: u64 = 1;
/// Where delta begins. A model has words of 32 bits.
const DELTA_AT: u32 = if cfg!(thiscpu_model) { 8 } else { 24 };
const TAG: u64 = (1 << DELTA_AT) - 1;
/// Epochs in a bank are numbers modulo this: 2^23.
const EPOCHS: u64 = 1 << (DELTA_AT - 1);

/// Amounts from this on are saved at once, so that delta cannot overflow before it is saved.
///
/// Delta holds 2^39. An adder that finds 2^38 or more returns when it is saved. Until then each
/// other thread can have added once more, and there are at most 2^22 threads: 2^38 + 2^22 * 2^15 is
/// below 2^39.
const SMALL: i64 = if cfg!(thiscpu_model) { 1 << 10 } else { 1 << 15 };
/// A delta of this or more is saved by the adder that finds it.
const FULL: i64 = if cfg!(thiscpu_model) { 1 << 20 } else { 1 << 38 };

/// The result of an addition to the first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::segment) enum Added {
    /// The bank was open: the addition has happened.
    Counted,
    /// The bank was open, and its delta is so large that it should be saved.
    Full,
    /// The bank was sealed: nothing has happened.
    Void,
}

/// A later flip has changed a bank that a sum looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::segment) struct Overtaken;

/// A step of a sum that seals banks.
pub(in crate::segment) struct Step<'a> {
    pub(in crate::segment) epoch: &'a AtomicU64,
    /// The epoch during this step.
    pub(in crate::segment) current: u64,
    /// The epoch that the banks are sealed for.
    pub(in crate::segment) sealed: u64,
}

impl Step<'_> {
    /// Returns whether the step is not over.
    pub(super) fn is_current(&self) -> bool {
        // Acquire: pairs with the exchange of the epoch, so that a later load of a bank sees the
        // seals before it.
        self.epoch.load(Acquire) == self.current
    }

    /// Returns whether the step is not over for so long that epochs in banks come again.
    pub(super) fn is_recent(&self) -> bool {
        // Acquire: as in `is_current`.
        self.epoch.load(Acquire).wrapping_sub(self.current) < EPOCHS / 2
    }
}

/// One bank of one lane of one counter.
#[derive(Debug)]
#[repr(transparent)]
pub(in crate::segment) struct Bank(Double);

#[derive(Clone, Copy, Debug)]
struct First(u64);

impl First {
    fn new(delta: i64, epoch: u64, sealed: u64) -> First {
        First((delta as u64) << DELTA_AT | (epoch % EPOCHS) << 1 | sealed)
    }

    fn delta(self) -> i64 {
        self.0 as i64 >> DELTA_AT
    }

    fn is_sealed(self) -> bool {
        self.0 & SEALED != 0
    }

    fn is_full(self) -> bool {
        // Not a branch for each sign: the sum is unsigned.
        (self.delta().wrapping_add(FULL) as u64) >= 2 * FULL as u64
    }

    #[inline(always)]
    fn is_sealed_or_full(self) -> bool {
        if cfg!(thiscpu_model) {
            return self.is_sealed() || self.is_full();
        }
        const { assert!(FULL == 1 << (62 - DELTA_AT) || cfg!(thiscpu_model)) };
        // One branch for both: delta is full if its two highest bits differ. After the rotation
        // that is bit 0, and the seal is bit 1.
        (self.0 ^ self.0 << 1).rotate_left(1) & 3 != 0
    }

    fn is_sealed_for(self, epoch: u64) -> bool {
        self.0 & TAG == First::new(0, epoch, SEALED).0
    }
}

impl Bank {
    /// Returns a bank as zeroed memory is: open, for epoch 0.
    #[cfg(any(thiscpu_model, test))]
    pub(in crate::segment) const fn new() -> Bank {
        Bank(Double::new([0, 0]))
    }

    /// Returns whether [`add_small`](Self::add_small) takes the amount.
    #[inline(always)]
    pub(in crate::segment) fn is_small(n: i64) -> bool {
        (-SMALL..SMALL).contains(&n)
    }

    /// Adds a small amount, if the bank is open.
    ///
    /// One locked addition, which orders as an acquire and a release: it pairs with the exchange of
    /// [`seal`](Self::seal), so a sum that counts this addition sees what preceded it.
    #[inline(always)]
    pub(in crate::segment) fn add_small(&self, n: i64) -> Added {
        let old = First(self.0.add_first((n as u64) << DELTA_AT));
        match old.is_sealed_or_full() {
            false => Added::Counted,
            true if old.is_sealed() => Added::Void,
            true => Added::Full,
        }
    }

    /// Adds any amount, saves delta, and opens the bank if it is sealed.
    ///
    /// `is_current` says whether the epoch that led here is not over. Returns false if it is, or if
    /// the bank has just changed.
    pub(in crate::segment) fn add_saved(
        &self,
        n: i64,
        epoch: u64,
        is_current: impl FnOnce() -> bool,
    ) -> bool {
        let [first, saved] = self.0.load();
        let old = First(first);
        // A bank that is open keeps its epoch, whichever that is.
        let (tag, delta) = match old.is_sealed() {
            false => (first & TAG, old.delta()),
            true if is_current() => (First::new(0, epoch, 0).0, 0),
            true => return false,
        };
        let saved_now = saved.wrapping_add(delta as u64).wrapping_add(n as u64);
        self.0.exchange([first, saved], [tag, saved_now])
    }

    /// Saves a full delta, unless the bank is sealed first.
    #[cold]
    pub(in crate::segment) fn save(&self) {
        loop {
            let [first, saved] = self.0.load();
            let old = First(first);
            if old.is_sealed() || !old.is_full() {
                return;
            }
            let saved_now = saved.wrapping_add(old.delta() as u64);
            if self.0.exchange([first, saved], [first & TAG, saved_now]) {
                return;
            }
        }
    }

    /// Seals the bank for the epoch of a sum's step, and returns its count.
    ///
    /// Anybody may repeat this. Fails if the step is over, and the bank is not sealed for it.
    pub(in crate::segment) fn seal(&self, step: &Step<'_>) -> Result<i64, Overtaken> {
        loop {
            let [first, saved] = self.0.load();
            let old = First(first);
            if old.is_sealed_for(step.sealed) {
                return self.sealed_count(step);
            }
            // After the loads: a later sum would have changed the bank since, and the exchange
            // would fail. So the bank may have any value, also one that nobody has written.
            if !step.is_current() {
                return Err(Overtaken);
            }
            let delta = if old.is_sealed() { 0 } else { old.delta() };
            let count = saved.wrapping_add(delta as u64);
            let sealed = First::new(0, step.sealed, SEALED).0;
            if self.0.exchange([first, saved], [sealed, count]) {
                return Ok(count as i64);
            }
        }
    }

    /// Returns the count without a seal, if nobody saves delta meanwhile.
    ///
    /// The counts added to the bank must have one sign. Then the result was true at one instant of
    /// the call. Writes nothing.
    pub(in crate::segment) fn count(&self) -> Option<i64> {
        // Acquire, all, so the loads stay in this order. Saved counts of one sign never return to
        // an earlier value. So if both loads find one value, delta was not saved between them, and
        // the count was true when the first word was loaded.
        let saved = self.0.second();
        let first = First(self.0.first());
        let delta = if first.is_sealed() { 0 } else { first.delta() };
        (self.0.second() == saved).then(|| (saved as i64).wrapping_add(delta))
    }

    /// Returns the count of a bank that was sealed for a step.
    fn sealed_count(&self, step: &Step<'_>) -> Result<i64, Overtaken> {
        // Acquire, both: the first word is looked at again after the second. If it has not left the
        // epoch's seal, the second word has not changed since the seal.
        let saved = self.0.second();
        // The bank has part of the epoch's number, which comes again.
        match First(self.0.first()).is_sealed_for(step.sealed) && step.is_recent() {
            true => Ok(saved as i64),
            false => Err(Overtaken),
        }
    }
}

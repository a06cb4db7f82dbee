//! A lane of a counter that can be removed, so that another counter gets its memory.
//!
//! As in [`lane`](super::lane), a lane has two banks, and each bank is open or sealed. In addition
//! the first word names the *generation* of the counter:
//!
//! ```text
//! first    delta (12 bits, signed) | generation (28 bits) | epoch (23 bits) | sealed (1 bit)
//! second   saved (64 bits)
//! ```
//!
//! Generations of counters that are in use are odd. The next even one says that the counter was
//! removed. The memory then serves another counter, of the next odd generation. Zeroed memory has
//! generation 0, and serves the counter of generation 1 first.
//!
//! | a bank of the generation | is, for a counter of generation *g* |
//! |---|---|
//! | before *g* | empty: nobody has added to it yet |
//! | *g* | open, with the count saved + delta, or sealed, with the count saved |
//! | after *g* | not its own any more: the counter was removed |
//!
//! An adder exchanges the first word, so that it adds to no other generation than its own. An
//! addition, as plain lanes use it, would count for whoever has the bank by then.
//!
//! Whoever removes a counter seals its banks for the next generation, which keeps their counts.
//! After that no adder of the old generation succeeds. So each add is in the last value, or it
//! learns that the counter was removed.
//!
//! A generation comes again after 2^27 removals of counters in one place. An adder could be wrong
//! if its handle has slept through exactly a multiple of these.

use super::lane::{Overtaken, Step};
use crate::sys::double::Double;

const SEALED: u64 = 1;
/// Where the epoch, the generation and delta begin. A model has words of 32 bits.
const EPOCH_AT: u32 = 1;
const GENERATION_AT: u32 = if cfg!(thiscpu_model) { 8 } else { 24 };
const DELTA_AT: u32 = if cfg!(thiscpu_model) { 16 } else { 52 };
const GENERATIONS: u64 = 1 << (DELTA_AT - GENERATION_AT);
const EPOCHS: u64 = 1 << (GENERATION_AT - EPOCH_AT);
const TAG: u64 = (1 << DELTA_AT) - 1;
/// Delta is at least `-DELTA_MAX - 1`, and at most this.
const DELTA_MAX: i64 = if cfg!(thiscpu_model) { 7 } else { (1 << (63 - DELTA_AT)) - 1 };

/// The counter was removed: nothing has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::segment) struct Removed;

/// How a bank's generation relates to a counter's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Relation {
    /// The counter has not used the bank.
    Earlier,
    Own,
    /// The counter was removed.
    Later,
}

/// One bank of one lane of a counter that can be removed.
#[derive(Debug)]
#[repr(transparent)]
pub(in crate::segment) struct RemovableBank(Double);

#[derive(Clone, Copy, Debug)]
struct First(u64);

impl First {
    fn new(delta: i64, generation: u64, epoch: u64, sealed: u64) -> First {
        let (generation, epoch) = (generation % GENERATIONS, epoch % EPOCHS);
        let tag = generation << GENERATION_AT | epoch << EPOCH_AT | sealed;
        First((delta as u64) << DELTA_AT | tag)
    }

    fn delta(self) -> i64 {
        self.0 as i64 >> DELTA_AT
    }

    fn is_sealed(self) -> bool {
        self.0 & SEALED != 0
    }

    fn relation(self, generation: u64) -> Relation {
        let ahead = (self.0 >> GENERATION_AT).wrapping_sub(generation) % GENERATIONS;
        match ahead {
            0 => Relation::Own,
            _ if ahead < GENERATIONS / 2 => Relation::Later,
            _ => Relation::Earlier,
        }
    }

    /// Returns the first word after the addition of `n`, unless that takes both words.
    #[inline(always)]
    fn plus(self, n: i64, generation: u64) -> Option<First> {
        let is_open = self.relation(generation) == Relation::Own && !self.is_sealed();
        let sum = self.delta().checked_add(n)?;
        let fits = (-DELTA_MAX - 1..=DELTA_MAX).contains(&sum);
        (is_open && fits).then(|| First(self.0.wrapping_add((n as u64) << DELTA_AT)))
    }

    fn is_sealed_for(self, generation: u64, epoch: u64) -> bool {
        self.0 & TAG == First::new(0, generation, epoch, SEALED).0
    }
}

impl RemovableBank {
    /// Returns a bank as zeroed memory is: open, for generation 0 and epoch 0.
    #[cfg(thiscpu_model)]
    pub(in crate::segment) const fn new() -> RemovableBank {
        RemovableBank(Double::new([0, 0]))
    }

    /// Adds any amount to a counter, and opens the bank if it is sealed or of an earlier counter.
    ///
    /// `is_current` says whether the epoch that led here is not over. Returns false if it is, or if
    /// the bank has just changed. Each exchange orders as an acquire and a release: it pairs with
    /// those of [`seal`](Self::seal) and [`remove`](Self::remove), so whoever counts this addition
    /// sees what preceded it.
    #[inline(always)]
    pub(in crate::segment) fn add(
        &self,
        n: i64,
        generation: u64,
        epoch: u64,
        is_current: impl FnOnce() -> bool,
    ) -> Result<bool, Removed> {
        let first = First(self.0.first());
        match first.plus(n, generation) {
            Some(now) => Ok(self.0.exchange_first(first.0, now.0)),
            None => self.add_saved(n, generation, epoch, is_current),
        }
    }

    #[cold]
    fn add_saved(
        &self,
        n: i64,
        generation: u64,
        epoch: u64,
        is_current: impl FnOnce() -> bool,
    ) -> Result<bool, Removed> {
        let [first, saved] = self.0.load();
        let old = First(first);
        let relation = old.relation(generation);
        let (tag, count) = match relation {
            Relation::Later => return Err(Removed),
            // A bank that is open keeps its epoch, whichever that is.
            Relation::Own if !old.is_sealed() => (first & TAG, count(old, saved, relation)),
            _ if is_current() => {
                (First::new(0, generation, epoch, 0).0, count(old, saved, relation))
            }
            _ => return Ok(false),
        };
        Ok(self.0.exchange([first, saved], [tag, count.wrapping_add(n) as u64]))
    }

    /// Seals the bank for the epoch of a sum's step, and returns the counter's count.
    ///
    /// Anybody may repeat this. Returns `None` if the counter was removed. Fails if the step is
    /// over, and the bank is not sealed for it.
    pub(in crate::segment) fn seal(
        &self,
        generation: u64,
        step: &Step<'_>,
    ) -> Result<Option<i64>, Overtaken> {
        loop {
            let [first, saved] = self.0.load();
            let old = First(first);
            let relation = old.relation(generation);
            if relation == Relation::Later {
                return Ok(None);
            }
            if old.is_sealed_for(generation, step.sealed) {
                return self.sealed_count(generation, step);
            }
            // After the loads, as in `Bank::seal`: the bank may have any value.
            if !step.is_current() {
                return Err(Overtaken);
            }
            let count = count(old, saved, relation);
            let sealed = First::new(0, generation, step.sealed, SEALED).0;
            if self.0.exchange([first, saved], [sealed, count as u64]) {
                return Ok(Some(count));
            }
        }
    }

    /// Returns the count of a bank that was sealed for a step.
    fn sealed_count(&self, generation: u64, step: &Step<'_>) -> Result<Option<i64>, Overtaken> {
        // Acquire, both: as in `Bank::sealed_count`. Only a removal keeps the second word and
        // changes the first, and then nobody says any more that the counter was not removed.
        let saved = self.0.second();
        let first = First(self.0.first());
        match first.is_sealed_for(generation, step.sealed) && step.is_recent() {
            true => Ok(Some(saved as i64)),
            false if first.relation(generation) == Relation::Later => Ok(None),
            false => Err(Overtaken),
        }
    }

    /// Seals the bank for ever, and returns the counter's last count in it.
    ///
    /// Anybody may repeat this. Returns `None` if another counter uses the bank already.
    pub(in crate::segment) fn remove(&self, generation: u64) -> Option<i64> {
        let after = generation.wrapping_add(1);
        loop {
            let [first, saved] = self.0.load();
            let old = First(first);
            match old.relation(after) {
                Relation::Own => return self.last_count(first),
                Relation::Later => return None,
                Relation::Earlier => {}
            }
            let count = count(old, saved, old.relation(generation));
            let removed = First::new(0, after, 0, SEALED).0;
            if self.0.exchange([first, saved], [removed, count as u64]) {
                return Some(count);
            }
        }
    }

    /// Returns the count of a bank whose first word has just said that its counter was removed.
    fn last_count(&self, first: u64) -> Option<i64> {
        // Acquire, both: the second word is loaded after the seal. If the first has not changed,
        // no other counter has come to use the bank.
        let saved = self.0.second();
        (self.0.first() == first).then_some(saved as i64)
    }

    /// Returns the count without a seal, if nobody changes the bank meanwhile.
    ///
    /// The counts added to the bank must have one sign. Then the result is between those at the
    /// beginning and at the end of the call. Writes nothing.
    pub(in crate::segment) fn count(&self, generation: u64) -> Option<Result<i64, Removed>> {
        // Acquire, all, so the loads stay in this order. The count only grows, or only falls. If
        // both loads of the first word agree, a delta that was saved between them came again, and
        // so the count is at most that of the second load.
        let first = self.0.first();
        let saved = self.0.second();
        if self.0.first() != first {
            return None;
        }
        let first = First(first);
        Some(match first.relation(generation) {
            Relation::Later => Err(Removed),
            relation => Ok(count(first, saved, relation)),
        })
    }
}

/// Returns the count of a bank for a counter to which it relates so.
fn count(first: First, saved: u64, relation: Relation) -> i64 {
    match relation {
        Relation::Own if first.is_sealed() => saved as i64,
        Relation::Own => (saved as i64).wrapping_add(first.delta()),
        Relation::Earlier | Relation::Later => 0,
    }
}

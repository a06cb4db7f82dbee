//! A charge that its lane does not take at once.

use super::record::Record;
use super::{Account, cache};
use crate::lanes::{here, table};
use crate::section::{ATTEMPTS, LedgerSections as _, Outcome, Processor};
use crate::sys::atomic::Ordering::Relaxed;
use crate::sys::errno;
use crate::sys::tier;

/// An account that was charged so often in vain is put into a lane, in the place of one that was charged less.
const MISSES_MAX: u16 = 64;
/// So often it is looked whether a way is free.
const MISSES_A_LOOK: u16 = 8;

impl<const N: usize> Account<N> {
    #[cold]
    #[inline(never)]
    pub(super) fn charge_slow(&self, index: usize, n: i64, outcome: Outcome) {
        tier::expect();
        let _errno = errno::save();
        if matches!(outcome, Outcome::NoLane | Outcome::Shut) {
            here::join();
        }
        let mut outcome = outcome;
        for _ in 0..ATTEMPTS {
            if !matches!(outcome, Outcome::Aborted | Outcome::NoLane | Outcome::Shut) {
                break;
            }
            outcome = self.charge_lane_again(index, n);
        }
        match outcome {
            Outcome::Done => {}
            Outcome::Differs => {
                self.charge_shared(index, n);
                self.missed();
            }
            Outcome::Window => {
                self.charge_shared(index, n);
                self.shared().drain(self.record());
            }
            _ => self.charge_locked(index, n),
        }
    }

    /// One copy of the section, however often it is tried.
    #[inline(never)]
    fn charge_lane_again(&self, index: usize, n: i64) -> Outcome {
        self.charge_lane(index, n)
    }

    /// Charges the account's own word, by a section if its gate is open.
    #[inline(never)]
    pub(super) fn charge_shared(&self, index: usize, n: i64) {
        let record = self.record();
        for _ in 0..ATTEMPTS {
            let word = Record::<N>::word_at(index);
            // SAFETY: the gate is a record's, which has this word.
            let outcome =
                unsafe { Processor::charge_shared(&record.gate, word, Record::<N>::scaled(n)) };
            match outcome {
                Outcome::Done => return,
                Outcome::Aborted => {}
                _ => break,
            }
        }
        self.charge_locked(index, n);
    }

    /// Charges without a section. Waits for whoever needs the account to hold still.
    #[cold]
    fn charge_locked(&self, index: usize, n: i64) {
        let record = self.record();
        let _guard = record.lock.lock();
        record.add(index, n);
        // It is closed if there was no memory for lanes before, or a fork has left a sum behind.
        self.shared().reopen(record);
    }

    /// Takes notice of a charge that found the account in no lane.
    fn missed(&self) {
        let (record, shared) = (self.record(), self.shared());
        shared.count_miss();
        // Relaxed: an estimate.
        let misses = record.misses.load(Relaxed).wrapping_add(1);
        let is_often = misses >= MISSES_MAX;
        record.misses.store(if is_often { 0 } else { misses }, Relaxed);
        if is_often || misses % MISSES_A_LOOK == 1 {
            shared.install(record, is_often);
        }
    }
}

impl<const N: usize> super::Shared<N> {
    pub(super) fn misses(&self) -> u64 {
        let in_lane = |item| move |lane| cache::misses(item, lane).load(Relaxed);
        self.item().map_or(0, |item| (1..=table::in_use()).map(in_lane(item)).sum())
    }

    /// Whether two accounts are cached in one set.
    pub(super) fn are_neighbours(&self, one: &Record<N>, other: &Record<N>) -> bool {
        self.set_of(one) == self.set_of(other)
    }

    fn count_miss(&self) {
        let (item, entry) = (self.item.load(Relaxed), here::entry());
        if item != 0 && entry != 0 {
            let misses = cache::misses_at_entry(item, entry);
            // Relaxed, and not one step: for a figure that need not be exact.
            misses.store(misses.load(Relaxed).wrapping_add(1), Relaxed);
        }
    }
}

//! Charges: the section in this CPU's cache, and everything else a charge may need.

use super::bypass::{self, BYPASS_CALLS, Mode};
use super::cache;
use super::cache::EVICTING;
use super::core::LedgerCore;
use super::record::Record;
use crate::lanes::{current, table};
use crate::section::{ATTEMPTS, BATCH, LedgerSections as _, Outcome, Processor};
use crate::sys::atomic::Ordering::Relaxed;
use crate::sys::errno;
use crate::sys::startup;
use crate::tier::Tier;

/// One in 2^6 charges that miss a lane installs its account there; each one in models.
///
/// It replaces an account that nobody has charged since the last check. An account that is charged
/// often misses often, so it is installed soon.
const INSTALL_BITS: u32 = if cfg!(thiscpu_model) { 0 } else { 6 };
/// One in 2^3 while sampling, because there are few such charges.
const INSTALL_BITS_SAMPLING: u32 = if cfg!(thiscpu_model) { 0 } else { 3 };

/// Returns whether the miss with this number is chosen: one in 2^`bits`.
///
/// The distances vary, so that accounts that miss in a cycle all get their turn: the numbers are
/// multiples of the golden ratio, modulo 1.
fn is_chosen(miss: u64, bits: u32) -> bool {
    miss.wrapping_mul(0x9e37_79b9_7f4a_7c15).leading_zeros() >= bits
}

/// The arguments of an account's charge section, for code in other languages.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct AccountSlot {
    /// The address of the account's set, as a section takes it.
    pub set: usize,
    /// The key to find in the set.
    pub key: u64,
    /// The distance from a key to its first counter.
    pub first: usize,
    /// The distance from a counter to the next.
    pub step: usize,
}

impl<const N: usize> Record<N> {
    pub(super) fn slot(self) -> AccountSlot {
        let (key, chunk) = (self.key(), self.chunk());
        let [first, second] = [0, 1].map(|index| cache::counter_offset(index, N));
        AccountSlot { set: chunk.cache + cache::set_of(key, N), key, first, step: second - first }
    }

    /// Adds `n` to counter `index`, which is below `N`.
    #[inline(always)]
    pub(super) fn charge(self, index: usize, n: i64) {
        match bypass::mode() {
            Mode::Cached => {
                let outcome = self.charge_lane(index, n);
                if outcome != Outcome::Committed {
                    self.charge_slow(index, n, outcome);
                }
            }
            Mode::Bypass(left) => {
                self.charge_shared(index, n);
                if bypass::count_bypassed(left) {
                    self.end_bypass();
                }
            }
            Mode::Sampling => self.charge_sampled(index, n),
        }
    }

    #[inline(always)]
    fn charge_lane(self, index: usize, n: i64) -> Outcome {
        let (key, chunk) = (self.key(), self.chunk());
        let set = chunk.cache + cache::set_of(key, N);
        // SAFETY: the set is in the ledger's cache, if it has one; otherwise the address makes the
        // section fail its first check. The rows of the cache include this counter, since `index`
        // is below `N`.
        unsafe { Processor::charge(set, key, cache::counter_offset(index, N), n) }
    }

    /// Charges while this thread samples how often its charges hit the lane.
    #[cold]
    #[inline(never)]
    pub(super) fn charge_sampled(self, index: usize, n: i64) {
        let outcome = self.charge_lane_again(index, n);
        if outcome != Outcome::Committed {
            self.charge_slow(index, n, outcome);
        }
        bypass::sampled(outcome == Outcome::Committed);
    }

    #[cold]
    #[inline(never)]
    pub(super) fn end_bypass(self) {
        let _errno = errno::save();
        self.ledger().count_misses(BYPASS_CALLS as u64);
        bypass::start_sampling();
    }

    #[cold]
    #[inline(never)]
    pub(super) fn charge_slow(self, index: usize, n: i64, outcome: Outcome) {
        let _errno = errno::save();
        if startup::tier_or_panic() == Tier::Atomic {
            bypass::bypass_forever();
            self.charge_shared(index, n);
            return;
        }
        let has_joined =
            matches!(outcome, Outcome::NoLane | Outcome::GateClosed) && current::acquire_lane();
        let mut outcome = outcome;
        for attempt in 0..ATTEMPTS {
            if outcome != Outcome::Aborted && (attempt > 0 || !has_joined) {
                break;
            }
            outcome = self.charge_lane_again(index, n);
        }
        if outcome == Outcome::Committed {
            return;
        }
        // The ways of a captured account are marked, so a charge that finds none did not miss.
        let is_captured = !self.charge_shared(index, n);
        match outcome {
            Outcome::Mismatch if !is_captured => self.record_miss(),
            // An amount that no lane would take needs no room there.
            Outcome::OutsideWindow if n.unsigned_abs() < BATCH.into() => {
                self.ledger().flush_and_keep(self)
            }
            _ => {}
        }
    }

    /// Retries the section. Not inlined, so that there is one copy for all attempts.
    #[inline(never)]
    fn charge_lane_again(self, index: usize, n: i64) -> Outcome {
        self.charge_lane(index, n)
    }

    /// Adds to the account's own word, and returns whether the account was not captured.
    #[inline(always)]
    pub(super) fn charge_shared(self, index: usize, n: i64) -> bool {
        let is_free = self.charge_word(index, n);
        if !is_free {
            self.finish_captured_charge(index);
        }
        is_free
    }

    #[cold]
    #[inline(never)]
    fn finish_captured_charge(self, index: usize) {
        let _errno = errno::save();
        let (record, shared) = (self, self.ledger());
        let _guard = shared.lock_account(record);
        if !record.is_captured() && record.has_captured_word() {
            // An overflow or a fork has left the sign.
            record.end_capture();
        }
        shared.recapture(record, index);
    }

    /// Counts a charge whose account was in no way of the lane, and may install the account.
    fn record_miss(self) {
        let (record, shared) = (self, self.ledger());
        let (set, entry) = (shared.set_of(record), current::entry());
        let misses = shared.count_misses(1);
        if entry != 0 && shared.find(set, entry, record.key() | EVICTING).is_some() {
            // The account is in the lane, marked by a thread that reads it exactly.
            return bypass::ignore_miss();
        }
        if entry != 0 && shared.find(set, entry, 0).is_some() {
            // There is room: the lane is useful, but new to this account.
            shared.install(record, false);
            return bypass::ignore_miss();
        }
        let is_sampling = bypass::mode() == Mode::Sampling;
        if is_chosen(misses, if is_sampling { INSTALL_BITS_SAMPLING } else { INSTALL_BITS }) {
            shared.install(record, true);
            if bypass::mode() == Mode::Cached {
                bypass::start_sampling();
            }
        }
    }
}

impl<const N: usize> LedgerCore<N> {
    pub(super) fn misses(&self) -> u64 {
        let in_lane = |item| move |lane| cache::misses(item, lane).load(Relaxed);
        self.item().map_or(0, |item| (1..=table::in_use()).map(in_lane(item)).sum())
    }

    /// Adds to the misses of this thread's lane, and returns their number.
    fn count_misses(&self, n: u64) -> u64 {
        let (item, entry) = (self.item.load(Relaxed), current::entry());
        if item == 0 || entry == 0 {
            return 1;
        }
        let misses = cache::misses_at_entry(item, entry);
        // Relaxed, and not one step: the number is an estimate.
        let now = misses.load(Relaxed).wrapping_add(n);
        misses.store(now, Relaxed);
        now
    }
}

//! One counter's part of an item: its banks in each lane, and its published state in lane 0.
//!
//! ```text
//! lane 0 (shared):       | published value, slack : 16 | claims : 8 | total : 8 |
//! lane i, rseq tiers:    | bank 0: count, window       | bank 1: count, window |
//! lane i, atomic tier:   | bank 0: seal, count | bank 1: seal, count | window 0 | window 1 | - - |
//! ```
//!
//! In the rseq tiers, sections on the lane's CPU change counts and windows. In the atomic tier a
//! compare-exchange changes a count and its seal together, or the seal alone.

use super::pair::Pair;
use super::window::{Estimate, Window};
use crate::gate::BANK_BYTES;
use crate::lanes::table::{self, READY_BIT, STRIDE};
use crate::section::{ATTEMPTS, Outcome, Processor, Sections as _};
use crate::sys::atomic::{
    AtomicI64, AtomicU64, AtomicU128,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use crate::sys::startup;
use crate::tier::Tier;

/// What the lanes of a counter have published, shared by all CPUs.
#[repr(C, align(16))]
pub(crate) struct PublishedState {
    published: AtomicU128,
    /// A bit for each lane (modulo 64), set while the lane's window moves.
    pub(crate) claims: AtomicU64,
    /// The sum of the lanes, in shared mode.
    pub(crate) total: AtomicI64,
}

impl PublishedState {
    /// Returns the sum of the windows' estimates; the sum of all lanes is within its slack.
    pub(crate) fn estimate(&self) -> Estimate {
        // Acquire: the second loads of the pairs in `try_estimate` come after this one.
        let bits = self.published.load(Acquire);
        Estimate { value: bits as i64, slack: (bits >> 64) as u64 }
    }

    /// Adds to value and slack at one instant; wraps.
    pub(crate) fn publish(&self, delta: Estimate) {
        let mut now = self.published.load(Acquire);
        loop {
            let value = (now as u64).wrapping_add(delta.value as u64);
            let slack = ((now >> 64) as u64).wrapping_add(delta.slack);
            let new = u128::from(slack) << 64 | u128::from(value);
            // AcqRel: the lane uses a wider slack after this, and has left a narrower one before
            // it. Pairs with the other publishers, and with the Acquire in `estimate`.
            match self.published.compare_exchange_weak(now, new, AcqRel, Acquire) {
                Ok(_) => return,
                Err(other) => now = other,
            }
        }
    }
}

/// The place of one counter's cell in an item.
#[derive(Clone, Copy)]
pub(crate) struct CounterCell {
    /// The address in lane 0.
    address: usize,
    tier: Tier,
}

/// Returns the bytes of one counter in each lane.
pub(crate) fn bytes(tier: Tier) -> usize {
    match tier {
        Tier::Atomic => 64,
        _ => 32,
    }
}

impl CounterCell {
    pub(crate) fn of(item: usize, index: usize) -> CounterCell {
        // There is an item, so the tier has been chosen.
        CounterCell::in_tier(startup::chosen().unwrap_or(Tier::Atomic), item, index)
    }

    /// Returns the cell of a counter in an item, for a caller that knows the tier.
    #[inline(always)]
    pub(crate) fn in_tier(tier: Tier, item: usize, index: usize) -> CounterCell {
        CounterCell { address: item + index * bytes(tier), tier }
    }

    pub(crate) fn published_state(&self) -> &'static PublishedState {
        // SAFETY: lane 0 of a cell is 32 zeroed bytes aligned to 32, which is a valid
        // `PublishedState`, and nothing else uses them. The counter that owns the item outlives
        // this reference, because no caller keeps it.
        unsafe { &*(self.address as *const PublishedState) }
    }

    fn bank(&self, lane: usize, bank: usize) -> usize {
        debug_assert!(lane > 0);
        self.address + lane * STRIDE + bank * BANK_BYTES
    }

    /// Returns the pair of a lane, in the atomic tier.
    pub(crate) fn pair(&self, lane: usize, bank: usize) -> &'static Pair {
        debug_assert_eq!(self.tier, Tier::Atomic);
        // SAFETY: in the atomic tier a bank begins with a pair, aligned to 16, and zero is a valid
        // one. Lanes in use stay accessible forever. The counter that owns the item outlives this
        // reference, because no caller keeps it.
        unsafe { &*(self.bank(lane, bank) as *const Pair) }
    }

    fn window_word(&self, lane: usize, bank: usize) -> &'static AtomicU64 {
        let address = match self.tier {
            Tier::Atomic => self.address + lane * STRIDE + 2 * BANK_BYTES + bank * 8,
            _ => self.bank(lane, bank) + 8,
        };
        // SAFETY: a window is an aligned word of a lane in use, which stays accessible forever.
        // Sections and this code access it as 8 bytes only. The counter that owns the item outlives
        // this reference, because no caller keeps it.
        unsafe { &*(address as *const AtomicU64) }
    }

    pub(crate) fn window(&self, lane: usize, bank: usize) -> Window {
        // Acquire: pairs with the Release in `move_pair_window`. In the rseq tiers the Acquire of
        // the lane's claim makes visible what its previous holder stored.
        Window(self.window_word(lane, bank).load(Acquire))
    }

    /// Returns the count of a bank: exact if the bank is frozen, else of some instant.
    pub(crate) fn count(&self, lane: usize, bank: usize) -> i64 {
        match self.tier {
            Tier::Atomic => self.pair(lane, bank).load().total(),
            // SAFETY: in the rseq tiers a bank begins with its count, an aligned word of a lane in
            // use that is accessed as 8 bytes only. Relaxed: the fence of the flip makes visible
            // what sections committed.
            _ => unsafe { (*(self.bank(lane, bank) as *const AtomicI64)).load(Relaxed) },
        }
    }

    /// Stops adders that still use this bank. In the rseq tiers the fence does that.
    pub(crate) fn freeze(&self, lane: usize, bank: usize) {
        if self.tier == Tier::Atomic {
            self.pair(lane, bank).freeze();
        }
    }

    /// Admits adders to a bank, before the gate points at it.
    pub(crate) fn open(&self, lane: usize, bank: usize) {
        if self.tier == Tier::Atomic {
            self.pair(lane, bank).open();
        }
    }

    /// Ends a move of a window that a fork interrupted.
    pub(crate) fn end_window_move(&self, lane: usize, bank: usize) {
        if self.tier == Tier::Atomic && self.pair(lane, bank).load().seal.is_moving() {
            self.pair(lane, bank).update(|now| now.with(now.seal.moved()));
        }
    }

    /// Moves the window of a lane's bank; returns whether it could.
    ///
    /// The count must fit into the new window. In the rseq tiers the calling thread must still be
    /// on that lane. The caller holds the lane's claim, and has published both windows.
    pub(crate) fn move_window(&self, lane: usize, bank: usize, window: Window) -> bool {
        if self.tier == Tier::Atomic {
            return self.move_pair_window(lane, bank, window);
        }
        let (address, entry) =
            (self.address + bank * BANK_BYTES + READY_BIT, table::entry_of(lane));
        // SAFETY: the address is that of a bank of this cell in lane 0, plus `READY_BIT`.
        let attempt = || unsafe { Processor::move_window(address, entry, window.0) };
        (0..ATTEMPTS).map(|_| attempt()).find(|&outcome| outcome != Outcome::Aborted)
            == Some(Outcome::Committed)
    }

    /// Moves a window in the atomic tier, where it keeps adders out meanwhile.
    ///
    /// An adder that loaded the old window could otherwise commit a count outside the new one.
    fn move_pair_window(&self, lane: usize, bank: usize, window: Window) -> bool {
        let pair = self.pair(lane, bank);
        let now = pair.load();
        let moving = now.with(now.seal.moving());
        if now.seal.is_sealed() || !window.holds(now.total()) || !pair.exchange(now, moving) {
            return false;
        }
        // Release: pairs with the Acquire in `window`. An adder that sees the seal of the next
        // statement sees this window.
        self.window_word(lane, bank).store(window.0, Release);
        pair.update(|now| now.with(now.seal.moved()));
        true
    }
}

//! One counter's part of an item: its banks in each lane, and its center in lane 0.
//!
//! ```text
//! lane 0 (shared):       | published value, slack : 16 | claims : 8 | total : 8 |
//! lane i, rseq tiers:    | bank 0: count, window       | bank 1: count, window |
//! lane i, atomic tier:   | bank 0: count, seal | bank 1: count, seal | window 0 | window 1 | - - |
//! ```
//!
//! In the rseq tiers counts and windows are changed by sections on the lane's CPU; in the atomic
//! tier a count is changed together with its seal.

use super::pair::{Pair, Sealed};
use super::window::{Estimate, Window};
use crate::lanes::table::{self, HALF, STRIDE};
use crate::quiesce::BANK_BYTES;
use crate::section::{ATTEMPTS, Outcome, Processor, Sections as _};
use crate::sys::atomic::{
    AtomicI64, AtomicU64, AtomicU128,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use crate::sys::startup;
use crate::tier::Tier;

/// What all CPUs share of a counter that has lanes.
#[repr(C, align(16))]
pub(crate) struct PublishedState {
    published: AtomicU128,
    /// A bit for each lane (modulo 64) whose window is being changed.
    pub(crate) claims: AtomicU64,
    /// While the counter is tight: the sum of its lanes.
    pub(crate) total: AtomicI64,
}

impl PublishedState {
    /// The sum of the windows' extents: all lanes together are within the slack of the value.
    pub(crate) fn estimate(&self) -> Estimate {
        // Acquire: a later load (the validation in `bounds`) is not done before this one.
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
            // AcqRel: what a wider slack allows is done after it, what a narrower one forbids is
            // over before it; pairs with the other publishers and with the readers.
            match self.published.compare_exchange_weak(now, new, AcqRel, Acquire) {
                Ok(_) => return,
                Err(other) => now = other,
            }
        }
    }
}

/// Where one counter of an item is.
#[derive(Clone, Copy)]
pub(crate) struct CounterCell {
    /// In lane 0.
    address: usize,
    tier: Tier,
}

/// The bytes that one counter takes in each lane.
pub(crate) fn bytes(tier: Tier) -> usize {
    match tier {
        Tier::Atomic => 64,
        _ => 32,
    }
}

impl CounterCell {
    /// Counter `index` of the item at `item`.
    pub(crate) fn of(item: usize, index: usize) -> CounterCell {
        // There is an item, so the tier is chosen.
        let tier = startup::chosen().unwrap_or(Tier::Atomic);
        CounterCell { address: item + index * bytes(tier), tier }
    }

    pub(crate) fn published_state(&self) -> &'static PublishedState {
        // SAFETY: lane 0 of a cell is 32 zeroed bytes aligned to 32, a valid PublishedState, and nothing
        // else uses it. The counter that owns the item outlives this reference: no caller keeps it.
        unsafe { &*(self.address as *const PublishedState) }
    }

    fn bank(&self, lane: usize, bank: usize) -> usize {
        debug_assert!(lane > 0);
        self.address + lane * STRIDE + bank * BANK_BYTES
    }

    /// The pair of a lane of the atomic tier.
    pub(crate) fn pair(&self, lane: usize, bank: usize) -> &'static Pair {
        debug_assert_eq!(self.tier, Tier::Atomic);
        // SAFETY: in the atomic tier a bank begins with a pair, aligned to 16; zero is a valid one.
        // Lanes in use are accessible for ever. As for `center`.
        unsafe { &*(self.bank(lane, bank) as *const Pair) }
    }

    fn window_word(&self, lane: usize, bank: usize) -> &'static AtomicU64 {
        let address = match self.tier {
            Tier::Atomic => self.address + lane * STRIDE + 2 * BANK_BYTES + bank * 8,
            _ => self.bank(lane, bank) + 8,
        };
        // SAFETY: a window is an aligned word of a lane in use; sections and this code access it
        // as 8 bytes only. As for `center`.
        unsafe { &*(address as *const AtomicU64) }
    }

    pub(crate) fn window(&self, lane: usize, bank: usize) -> Window {
        // Acquire: pairs with the Release in `move_pair_window`. In the rseq tiers whoever holds the
        // lane's claim sees what the holder before stored, by the claim's own ordering.
        Window(self.window_word(lane, bank).load(Acquire))
    }

    /// The count of a bank that the caller has frozen, or a look at one that moves.
    pub(crate) fn count(&self, lane: usize, bank: usize) -> i64 {
        match self.tier {
            Tier::Atomic => self.pair(lane, bank).load().count,
            // SAFETY: in the rseq tiers a bank begins with its count, an aligned word that is
            // accessed as 8 bytes only. Relaxed: what must be visible is made so by the fence.
            _ => unsafe { (*(self.bank(lane, bank) as *const AtomicI64)).load(Relaxed) },
        }
    }

    /// Stops adders that still mean this bank; in the rseq tiers the fence does that.
    pub(crate) fn freeze(&self, lane: usize, bank: usize) {
        if self.tier == Tier::Atomic {
            self.pair(lane, bank).freeze();
        }
    }

    /// Lets adders into a bank, for when the gate points at it.
    pub(crate) fn open(&self, lane: usize, bank: usize) {
        if self.tier == Tier::Atomic {
            self.pair(lane, bank).open();
        }
    }

    /// Undoes what a fork in the middle of a change of a window leaves behind.
    pub(crate) fn end_window_move(&self, lane: usize, bank: usize) {
        if self.tier == Tier::Atomic && self.pair(lane, bank).load().seal.is_moving() {
            self.pair(lane, bank).update(|now| Sealed { seal: now.seal.moved(), ..now });
        }
    }

    /// Gives a bank of a lane a new window, if the count fits into it and (rseq tiers) the calling
    /// thread is still on that lane. The caller holds the lane's claim and has published both.
    pub(crate) fn move_window(&self, lane: usize, bank: usize, window: Window) -> bool {
        if self.tier == Tier::Atomic {
            return self.move_pair_window(lane, bank, window);
        }
        let (address, entry) = (self.address + bank * BANK_BYTES + HALF, table::entry_of(lane));
        // SAFETY: the address is that of a bank of this cell in lane 0.
        let attempt = || unsafe { Processor::retarget(address, entry, window.0) };
        (0..ATTEMPTS).map(|_| attempt()).find(|&outcome| outcome != Outcome::Aborted)
            == Some(Outcome::Done)
    }

    /// Keeps adders out while the window changes: one that looked at the old window may otherwise
    /// commit a count that is outside the new one.
    fn move_pair_window(&self, lane: usize, bank: usize, window: Window) -> bool {
        let pair = self.pair(lane, bank);
        let now = pair.load();
        let moving = Sealed { seal: now.seal.moving(), ..now };
        if now.seal.is_sealed() || !window.holds(now.count) || !pair.exchange(now, moving) {
            return false;
        }
        // Release: an adder that sees the seal of the next line sees this window.
        self.window_word(lane, bank).store(window.0, Release);
        pair.update(|now| Sealed { seal: now.seal.moved(), ..now });
        true
    }
}

//! A lane's credit: units that the pool has lent to it, from which its CPU takes and to which it gives
//! back in sections.
//!
//! ```text
//! lane 0 (shared): | - |
//! lane i:          | taken : 8 | window : 8 | - : 16 |
//! ```
//!
//! `taken` is what was acquired on this lane less what was released there since the lane was last
//! empty, times [`SCALE`]. The window says what it may be: from some units below what was lent, so
//! that a lane does not hoard, up to what was lent. It has the form that `add_windowed` checks: the
//! low 6 bits are a shift, the word itself is where the window begins, and it holds `1 << shift`
//! values. In units, because of the scale, it begins anywhere and holds `1 << (shift - 6)`.
//!
//! There are lanes in the rseq tiers only.

use crate::lanes::table::{STRIDE, distance_of};
use crate::sys::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// A unit in a lane.
pub const SCALE: i64 = 64;
const SHIFT_BITS: u32 = 6;

/// The bytes of a budget in each lane: its gate wants items aligned to this.
pub(super) const BYTES: usize = 32;

/// The most that a lane holds.
pub(super) const CREDIT_MAX: i64 = 1 << 40;

/// What a lane's `taken` may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window(pub(super) u64);

impl Window {
    /// What was lent to a lane with this window; a fresh lane's word is 0.
    pub(super) fn lent(self) -> i64 {
        match self.0 & 63 {
            0 => 0,
            shift => (self.0 as i64 >> SHIFT_BITS) + (1 << (shift - u64::from(SHIFT_BITS))),
        }
    }

    /// For a lane to which `lent` was lent, and which is to keep less than `capacity`, rounded up to a
    /// power of two.
    pub(super) fn new(lent: i64, capacity: i64) -> Window {
        let capacity = (capacity.clamp(2, CREDIT_MAX) as u64).next_power_of_two();
        let shift = capacity.trailing_zeros() + SHIFT_BITS;
        Window(((lent - capacity as i64) * SCALE) as u64 | u64::from(shift))
    }
}

/// Where a budget's credit is in one lane.
#[derive(Clone, Copy)]
pub(super) struct Credit {
    address: usize,
}

impl Credit {
    /// The credit in lane `lane` of the item at `item`.
    pub(super) fn of(item: usize, lane: usize) -> Credit {
        debug_assert!(lane > 0);
        Credit { address: item + lane * STRIDE }
    }

    /// The credit in the lane of table entry `entry`.
    pub(super) fn at_entry(item: usize, entry: usize) -> Credit {
        Credit { address: item + distance_of(entry) }
    }

    fn taken_word(&self) -> &'static AtomicI64 {
        // SAFETY: a budget's item has 32 bytes in each lane in use, accessible for ever and accessed in
        // words of 8 bytes only. The budget that owns the item outlives this reference: no caller
        // keeps it.
        unsafe { &*(self.address as *const AtomicI64) }
    }

    fn window_word(&self) -> &'static AtomicU64 {
        // SAFETY: as for `taken_word`.
        unsafe { &*((self.address + 8) as *const AtomicU64) }
    }

    /// What was taken, in units; right if the gate is closed and a fence has passed since.
    pub(super) fn taken(&self) -> i64 {
        // Relaxed: the fence makes visible what sections committed.
        self.taken_word().load(Relaxed) / SCALE
    }

    /// The window, or one that is changing.
    pub(super) fn window(&self) -> Window {
        // Relaxed: the section that replaces it compares.
        Window(self.window_word().load(Relaxed))
    }

    /// Makes the lane as new. Only while the gate is closed and a fence has passed since.
    pub(super) fn clear(&self) {
        // Relaxed: the gate's store, which opens it, comes after; sections load through the gate.
        self.taken_word().store(0, Relaxed);
        self.window_word().store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the section checks it.
    fn holds(window: Window, taken: i64) -> bool {
        ((taken * SCALE) as u64).wrapping_sub(window.0) >> (window.0 & 63) == 0
    }

    #[test]
    fn windows_hold_what_was_lent_and_no_more() {
        for lent in [0, 1, 17, 64, 1000, -5, -1000] {
            for capacity in [2, 16, 1024, 1 << 20] {
                let window = Window::new(lent, capacity);
                assert_eq!(window.lent(), lent);
                assert!(holds(window, lent) && !holds(window, lent + 1), "{lent}, {capacity}");
                let lowest = lent - capacity + 1;
                assert!(holds(window, lowest) && !holds(window, lowest - 1), "{lent}, {capacity}");
            }
        }
        assert_eq!(Window(0).lent(), 0);
        assert!(!holds(Window(0), 1) && !holds(Window(0), -1) && holds(Window(0), 0));
    }
}

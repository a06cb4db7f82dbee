//! A lane's credit: units that the pool has lent to it. Sections on its CPU take them and give them
//! back.
//!
//! ```text
//! lane 0 (shared): unused
//! lane i:          | taken : 8 | window : 8 | unused : 16 |
//! ```
//!
//! `taken` counts the units acquired on this lane, less those released there, since the lane was
//! last cleared. It counts in steps of [`SCALE`], so that a window has 6 low bits for a shift. The
//! 16 bytes are unused because a gate leads only to items that are aligned to 32.
//!
//! The window limits `taken`. Its upper end is the number of units lent. Its lower end is some
//! units below that, so that a lane does not hoard. Sections accept `taken` if `(window - taken) >>
//! (window & 63)` is 0, unsigned. So with `lent` units and a capacity of `1 << (shift - 6)`, they
//! accept `lent - capacity + 1` to `lent` units. An acquire accepts whatever is less than the
//! window, which are up to `lent` units as well, because of the shift in the low bits.
//!
//! Budgets use lanes in the rseq tiers only.

use crate::lanes::table::{STRIDE, distance_of};
use crate::sys::atomic::{
    AtomicI64, AtomicU64,
    Ordering::{Relaxed, Release},
};

/// One unit, as a lane counts it.
pub const SCALE: i64 = 64;
const SHIFT_BITS: u32 = 6;

/// The bytes of a budget in each lane.
pub(crate) const BYTES: usize = 32;

/// The largest capacity of a window, in units.
pub(crate) const CREDIT_MAX: i64 = 1 << 40;

/// The range of a lane's `taken`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window(pub(crate) u64);

impl Window {
    /// The window of a cleared lane.
    ///
    /// Its shift is not 0, as that of a new lane is: a Zen 4 takes 16 ns longer to find that a
    /// count is outside a window if it has to shift by 0.
    const EMPTY: Window = Window(SHIFT_BITS as u64);

    /// Returns the units lent to a lane with this window. The word of a new lane is 0.
    pub(crate) fn lent(self) -> i64 {
        self.0 as i64 >> SHIFT_BITS
    }

    /// Creates the window of a lane that was lent `lent` units and keeps fewer than `capacity`.
    ///
    /// Rounds `capacity` up to a power of two.
    pub(crate) fn new(lent: i64, capacity: i64) -> Window {
        let capacity = (capacity.clamp(2, CREDIT_MAX) as u64).next_power_of_two();
        let shift = capacity.trailing_zeros() + SHIFT_BITS;
        Window((lent * SCALE) as u64 | u64::from(shift))
    }
}

/// A budget's credit in one lane.
#[derive(Clone, Copy)]
pub(crate) struct Credit {
    address: usize,
}

impl Credit {
    /// Returns the credit of the item at `item` in lane `lane`.
    pub(crate) fn of(item: usize, lane: usize) -> Credit {
        debug_assert!(lane > 0);
        Credit { address: item + lane * STRIDE }
    }

    /// Returns the credit of the item at `item` in the lane of table entry `entry`.
    pub(crate) fn at_entry(item: usize, entry: usize) -> Credit {
        Credit { address: item + distance_of(entry) }
    }

    fn taken_word(&self) -> &'static AtomicI64 {
        // SAFETY: a budget's item has 32 bytes in each lane in use. Lanes are never unmapped, and
        // these bytes are accessed in words of 8 bytes only, so the reference stays valid. The word
        // means something while the budget owns the item; no caller keeps the reference longer.
        unsafe { &*(self.address as *const AtomicI64) }
    }

    fn window_word(&self) -> &'static AtomicU64 {
        // SAFETY: the second word of these 32 bytes, which stay accessible as `taken_word` argues.
        unsafe { &*((self.address + 8) as *const AtomicU64) }
    }

    /// Returns the units taken; exact if the gate is closed and a fence has passed since.
    pub(crate) fn taken(&self) -> i64 {
        // Relaxed: the fence makes visible what sections have committed.
        self.taken_word().load(Relaxed) / SCALE
    }

    /// Returns the window, which may change at any time.
    pub(crate) fn window(&self) -> Window {
        // Relaxed: the section that replaces the window compares it with this value.
        Window(self.window_word().load(Relaxed))
    }

    /// Replaces the window. No section and no other thread changes it meanwhile.
    pub(crate) fn set_window(&self, window: Window) {
        // Sections of this lane load the old window or the new one, and both are right.
        // Release: a fork that copies this store also copies what the caller did before it.
        self.window_word().store(window.0, Release);
    }

    /// Clears the lane. The gate is closed, and a fence has passed since.
    pub(crate) fn clear(&self) {
        // Relaxed: the SeqCst store that opens the gate comes after. A section computes the address
        // of these words from the gate's value, so its loads depend on the load that sees that
        // store. It thus sees these words, or what a section of this lane stored later.
        self.taken_word().store(0, Relaxed);
        self.window_word().store(Window::EMPTY.0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the window as the section does.
    fn holds(window: Window, taken: i64) -> bool {
        window.0.wrapping_sub((taken * SCALE) as u64) >> (window.0 & 63) == 0
    }

    #[test]
    fn window_holds_lent_credit_and_no_more() {
        for lent in [0, 1, 17, 64, 1000, -5, -1000] {
            for capacity in [2, 16, 1024, 1 << 20] {
                let window = Window::new(lent, capacity);
                assert_eq!(window.lent(), lent);
                assert!(holds(window, lent) && !holds(window, lent + 1), "{lent}, {capacity}");
                let lowest = lent - capacity + 1;
                let next = |taken: i64| (taken * SCALE).wrapping_sub(window.0 as i64) < 0;
                assert!(next(lent) && !next(lent + 1), "{lent}, {capacity}");
                assert!(holds(window, lowest) && !holds(window, lowest - 1), "{lent}, {capacity}");
            }
        }
        assert_eq!(Window(0).lent(), 0);
        assert!(!holds(Window::EMPTY, 1) && !holds(Window::EMPTY, -1) && holds(Window::EMPTY, 0));
        assert!(!holds(Window(0), 1) && !holds(Window(0), -1) && holds(Window(0), 0));
    }
}

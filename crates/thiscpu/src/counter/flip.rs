//! The flip: how a sum gets the value at one instant while nobody waits.
//!
//! 1. The inactive bank is frozen: nothing has changed it since the flip before. Add it up.
//! 2. Open it, and turn the gate to it. This is the instant that the sum is true at.
//! 3. Fence: every section that saw the old gate has committed or will restart into the new bank.
//!    Then seal the old bank's pairs, which does the same to adders outside sections.
//! 4. Add up the old bank. The two together are the value.
//!
//! An add takes effect at its look at the gate, or at the flip if it commits to the old bank after
//! it. So each add is wholly before the flip (and in step 4's bank) or wholly after, and none that
//! began after another had ended is counted without it: the later one's look at the gate comes
//! after the earlier one's.

use super::cell::CounterCell;
use super::core::Core;
use crate::lanes::table;
use crate::quiesce::Seen;
use crate::sys::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sys::fence;
use crate::sys::lock::Guard;
use crate::sys::startup;
use crate::tier::Tier;

/// A flip that waits for a fence.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingFlip {
    /// The gate as it was.
    before: Seen,
    /// How many flips had begun, with this one.
    pub(super) number: u32,
}

impl PendingFlip {
    pub(super) fn wants_fence(self) -> bool {
        startup::chosen() != Some(Tier::Atomic) && self.before.item().is_some()
    }
}

/// What a flip found, for each counter.
pub(super) struct FlipResult<const N: usize> {
    /// The value at the instant of the flip.
    pub(super) values: [i64; N],
    /// The part of it that is in lanes.
    pub(super) lanes: [i64; N],
}

impl<const N: usize> Core<N> {
    /// The values of all counters at one instant within this call.
    pub(super) fn sums(&self) -> [i64; N] {
        // Acquire: a flip with a higher number begins after this load, hence after the call began.
        let arrived = self.flips.load(Acquire);
        let guard = self.lock();
        // Callers that arrived together share a flip that began after they did.
        let shared = self.flips.load(Relaxed).wrapping_sub(arrived) as i32 > 0;
        if shared && !self.flip_incomplete.load(Relaxed) {
            return core::array::from_fn(|index| self.last[index].load(Relaxed));
        }
        // Whoever held the lock before may have made the counter tight: its one word is the value
        // then, and lanes and the other bank hold what is already in it.
        if let Some(now) = self.shared_value() {
            return [now.count; N];
        }
        self.flip(&guard, |gate| gate).values
    }

    /// Flips the banks; `then` may also close the gate.
    pub(super) fn flip(&self, guard: &Guard<'_>, then: impl Fn(Seen) -> Seen) -> FlipResult<N> {
        let (pending, mut flipped) = self.begin_flip(guard, then);
        if pending.wants_fence() {
            fence::fence();
        }
        self.end_flip(guard, pending, &mut flipped);
        flipped
    }

    /// The first two steps. The third is the caller's, for one counter or for many.
    pub(super) fn begin_flip(
        &self,
        _guard: &Guard<'_>,
        then: impl Fn(Seen) -> Seen,
    ) -> (PendingFlip, FlipResult<N>) {
        let before = self.gate.look();
        let pending = PendingFlip { before, number: self.flips.load(Relaxed).wrapping_add(1) };
        let (old, new) = (before.bank(), before.flipped().bank());
        // What is frozen stays frozen; this matters only where a flip is half done: by a fork, by the
        // panic of a fence that could not be had, or by who adds up many counters and goes on with this one later.
        if self.flip_incomplete.swap(true, Relaxed) && pending.wants_fence() {
            fence::fence();
        }
        self.freeze(before, new);
        let frozen = self.add_up(before, new);
        self.open(before, new);
        // Release: pairs with the Acquire in `sums`; the flip comes after its number.
        self.flips.store(pending.number, Release);
        self.gate.turn(then(before.flipped()));
        // Before the fence, which takes long: until the shared pairs of the old bank are frozen, an
        // adder that looked at the old gate may still commit to them, and `extent` would not be of
        // one instant with the flip.
        self.freeze_shared(old);
        (pending, frozen)
    }

    /// The last step: adds what is in the old bank to what was in the other.
    pub(super) fn end_flip(
        &self,
        _guard: &Guard<'_>,
        pending: PendingFlip,
        flipped: &mut FlipResult<N>,
    ) {
        let (before, old) = (pending.before, pending.before.bank());
        self.freeze(before, old);
        let rest = self.add_up(before, old);
        for index in 0..N {
            flipped.values[index] = flipped.values[index].wrapping_add(rest.values[index]);
            flipped.lanes[index] = flipped.lanes[index].wrapping_add(rest.lanes[index]);
            self.last[index].store(flipped.values[index], Relaxed);
        }
        self.flip_incomplete.store(false, Relaxed);
    }

    fn each_lane(&self, seen: Seen, mut visit: impl FnMut(usize, CounterCell, usize)) {
        let Some(item) = seen.item() else { return };
        // The number of lanes is read after the gate was turned, each time.
        for lane in 1..=table::in_use() {
            for index in 0..N {
                visit(index, CounterCell::of(item, index), lane);
            }
        }
    }

    fn freeze(&self, seen: Seen, bank: usize) {
        self.each_lane(seen, |_, cell, lane| cell.freeze(lane, bank));
        self.freeze_shared(bank);
    }

    pub(super) fn freeze_shared(&self, bank: usize) {
        self.shared.iter().for_each(|pairs| {
            pairs[bank].freeze();
        });
    }

    fn open(&self, seen: Seen, bank: usize) {
        self.each_lane(seen, |_, cell, lane| cell.open(lane, bank));
        self.shared.iter().for_each(|pairs| pairs[bank].open());
    }

    /// Adds up a frozen bank.
    fn add_up(&self, seen: Seen, bank: usize) -> FlipResult<N> {
        let mut lanes = [0i64; N];
        self.each_lane(seen, |index, cell, lane| {
            lanes[index] = lanes[index].wrapping_add(cell.count(lane, bank));
        });
        let shared = |index: usize| self.shared[index][bank].load().count;
        FlipResult { values: core::array::from_fn(|i| lanes[i].wrapping_add(shared(i))), lanes }
    }
}

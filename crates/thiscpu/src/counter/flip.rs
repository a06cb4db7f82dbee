//! The flip: how a sum reads the value at one instant while no adder waits.
//!
//! 1. The inactive bank is frozen: nothing has changed it since the previous flip. Add it up.
//! 2. Open the inactive bank, and point the gate at it. At this instant the sum is true.
//! 3. Fence. Every section that saw the old gate has committed, or will restart into the new bank.
//!    Then seal the pairs of the old bank, which does the same to adders outside sections.
//! 4. Add up the old bank. Both banks together are the value.
//!
//! An add takes effect when it loads the gate. If it commits to the old bank after the flip, it
//! takes effect at the flip. So each add is wholly before the flip, in the banks added up, or
//! wholly after it.
//!
//! If a sum counts an add, it also counts every add that ended before that one began: the later add
//! loads the gate after the earlier one has ended.

use super::cell::CounterCell;
use super::core::Core;
use crate::gate::GateState;
use crate::lanes::table;
use crate::sys::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sys::fence;
use crate::sys::lock::Guard;
use crate::sys::startup;
use crate::tier::Tier;

/// A flip that waits for its fence.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingFlip {
    before: GateState,
    /// The number of flips that had begun, including this one.
    pub(super) number: u32,
}

impl PendingFlip {
    pub(super) fn needs_fence(self) -> bool {
        startup::chosen() != Some(Tier::Atomic) && self.before.item().is_some()
    }
}

pub(super) struct FlipResult<const N: usize> {
    /// The value at the instant of the flip.
    pub(super) values: [i64; N],
    /// The part of the value that is in lanes.
    pub(super) lanes: [i64; N],
}

impl<const N: usize> Core<N> {
    /// Returns the values of all counters at one instant of this call.
    pub(super) fn sums(&self) -> [i64; N] {
        // Acquire: pairs with the Release in `begin_flip`. A flip with a higher number began after
        // this load, and therefore during this call.
        let arrived = self.flips.load(Acquire);
        let guard = self.lock();
        // Callers that arrived together share a flip that began after they arrived.
        let shared = self.flips.load(Relaxed).wrapping_sub(arrived) as i32 > 0;
        if shared && !self.flip_incomplete.load(Relaxed) {
            return core::array::from_fn(|index| self.last[index].load(Relaxed));
        }
        // The previous lock holder may have changed to shared mode. Then the one word is the value,
        // and lanes and the other bank hold adds that it already includes.
        if let Some(now) = self.shared_value() {
            return [now.count; N];
        }
        self.flip(&guard, |gate| gate).values
    }

    /// Flips the banks. `then` maps the new gate, and may close it.
    pub(super) fn flip(
        &self,
        guard: &Guard<'_>,
        then: impl Fn(GateState) -> GateState,
    ) -> FlipResult<N> {
        let (pending, mut result) = self.begin_flip(guard, then);
        if pending.needs_fence() {
            fence::fence();
        }
        self.end_flip(guard, pending, &mut result);
        result
    }

    /// Runs steps 1 and 2. The caller runs the fence of step 3, for one counter or for many.
    pub(super) fn begin_flip(
        &self,
        _guard: &Guard<'_>,
        then: impl Fn(GateState) -> GateState,
    ) -> (PendingFlip, FlipResult<N>) {
        let before = self.gate.load();
        let pending = PendingFlip { before, number: self.flips.load(Relaxed).wrapping_add(1) };
        let (old, new) = (before.bank(), before.flipped().bank());
        // The inactive bank is normally frozen already. It is not after an incomplete flip, which a
        // fork, a panic for lack of a fence, or a `sum_all` in progress may leave.
        if self.flip_incomplete.swap(true, Relaxed) && pending.needs_fence() {
            fence::fence();
        }
        self.freeze(before, new);
        let frozen = self.add_up(before, new);
        self.open(before, new);
        // Release: pairs with the Acquire in `sums`. The flip happens after its number is
        // published.
        self.flips.store(pending.number, Release);
        self.gate.set(then(before.flipped()));
        // This comes before the fence, which takes long. Until the shared pairs of the old bank are
        // frozen, an adder that loaded the old gate may still commit to them, and `estimate` could
        // not share an instant with the flip.
        self.freeze_shared(old);
        (pending, frozen)
    }

    /// Runs the rest of step 3 and step 4: adds up the old bank, and completes `result`.
    pub(super) fn end_flip(
        &self,
        _guard: &Guard<'_>,
        pending: PendingFlip,
        result: &mut FlipResult<N>,
    ) {
        let (before, old) = (pending.before, pending.before.bank());
        self.freeze(before, old);
        let rest = self.add_up(before, old);
        for index in 0..N {
            result.values[index] = result.values[index].wrapping_add(rest.values[index]);
            result.lanes[index] = result.lanes[index].wrapping_add(rest.lanes[index]);
            self.last[index].store(result.values[index], Relaxed);
        }
        self.flip_incomplete.store(false, Relaxed);
    }

    fn each_lane(&self, gate: GateState, mut visit: impl FnMut(usize, CounterCell, usize)) {
        let Some(item) = gate.item() else { return };
        // The number of lanes is read after each change of the gate, so it includes every lane that
        // an add may have used.
        for lane in 1..=table::in_use() {
            for index in 0..N {
                visit(index, CounterCell::of(item, index), lane);
            }
        }
    }

    fn freeze(&self, gate: GateState, bank: usize) {
        self.each_lane(gate, |_, cell, lane| cell.freeze(lane, bank));
        self.freeze_shared(bank);
    }

    pub(super) fn freeze_shared(&self, bank: usize) {
        self.shared.iter().for_each(|pairs| pairs[bank].freeze());
    }

    fn open(&self, gate: GateState, bank: usize) {
        self.each_lane(gate, |_, cell, lane| cell.open(lane, bank));
        self.shared.iter().for_each(|pairs| pairs[bank].open());
    }

    fn add_up(&self, gate: GateState, bank: usize) -> FlipResult<N> {
        let mut lanes = [0i64; N];
        self.each_lane(gate, |index, cell, lane| {
            lanes[index] = lanes[index].wrapping_add(cell.count(lane, bank));
        });
        let shared = |index: usize| self.shared[index][bank].load().count;
        FlipResult { values: core::array::from_fn(|i| lanes[i].wrapping_add(shared(i))), lanes }
    }
}

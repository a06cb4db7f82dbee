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
use super::core::{Core, Storage};
use crate::gate::GateState;
use crate::lanes::table;
use crate::sys::atomic::{
    AtomicI64,
    Ordering::{Acquire, Relaxed, Release},
};
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

/// How many counters a flip adds up at a time, lane by lane.
const BLOCK: usize = 64;

impl<S: Storage> Core<S> {
    /// Returns the values of all counters at one instant of this call.
    pub(super) fn sums(&self) -> Sums<'_> {
        // Acquire: pairs with the Release in `begin_flip`. A flip with a higher number began after
        // this load, and therefore during this call.
        let arrived = self.flips.load(Acquire);
        let guard = self.lock();
        // Callers that arrived together share a flip that began after they arrived.
        let shared = self.flips.load(Relaxed).wrapping_sub(arrived) as i32 > 0;
        if shared && !self.flip_incomplete.load(Relaxed) {
            return Sums { values: Values::Last(self.last()), _guard: guard };
        }
        // The previous lock holder may have changed to shared mode. Then the one word is the value,
        // and lanes and the other bank hold adds that it already includes.
        if let Some(now) = self.shared_value() {
            return Sums { values: Values::One(now.count), _guard: guard };
        }
        self.flip(&guard, |gate| gate);
        Sums { values: Values::Last(self.last()), _guard: guard }
    }

    /// Flips the banks, and stores the values in `self.last`.
    ///
    /// `then` maps the new gate, and may close it. Returns the part of the values that is in lanes,
    /// of all counters together.
    pub(super) fn flip(&self, guard: &Guard<'_>, then: impl Fn(GateState) -> GateState) -> i64 {
        let (pending, frozen) = self.begin_flip(guard, then);
        if pending.needs_fence() {
            fence::fence();
        }
        frozen.wrapping_add(self.end_flip(guard, pending))
    }

    /// Runs steps 1 and 2. The caller runs the fence of step 3, for one counter or for many.
    ///
    /// Stores the values of the inactive bank in `self.last`. Returns the part that is in lanes.
    pub(super) fn begin_flip(
        &self,
        _guard: &Guard<'_>,
        then: impl Fn(GateState) -> GateState,
    ) -> (PendingFlip, i64) {
        let before = self.gate.load();
        let pending = PendingFlip { before, number: self.flips.load(Relaxed).wrapping_add(1) };
        let (old, new) = (before.bank(), before.flipped().bank());
        // The inactive bank is normally frozen already. It is not after an incomplete flip, which a
        // fork, a panic for lack of a fence, or a `sum_all` in progress may leave.
        if self.flip_incomplete.swap(true, Relaxed) && pending.needs_fence() {
            fence::fence();
        }
        self.freeze(before, new);
        let frozen = self.add_up(before, new, |last, sum| last.store(sum, Relaxed));
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

    /// Runs the rest of step 3 and step 4: adds the old bank to `self.last`.
    ///
    /// No other flip has begun since `pending`. Returns the part of the old bank that is in lanes.
    pub(super) fn end_flip(&self, _guard: &Guard<'_>, pending: PendingFlip) -> i64 {
        let (before, old) = (pending.before, pending.before.bank());
        self.freeze(before, old);
        let rest = self.add_up(before, old, |last, sum| {
            last.store(last.load(Relaxed).wrapping_add(sum), Relaxed);
        });
        self.flip_incomplete.store(false, Relaxed);
        rest
    }

    fn each_lane(&self, gate: GateState, mut visit: impl FnMut(CounterCell, usize)) {
        let Some(item) = gate.item() else { return };
        for lane in lanes() {
            for index in 0..self.len() {
                visit(CounterCell::of(item, index), lane);
            }
        }
    }

    fn freeze(&self, gate: GateState, bank: usize) {
        self.each_lane(gate, |cell, lane| cell.freeze(lane, bank));
        self.freeze_shared(bank);
    }

    pub(super) fn freeze_shared(&self, bank: usize) {
        self.shared().iter().for_each(|pairs| pairs[bank].freeze());
    }

    fn open(&self, gate: GateState, bank: usize) {
        self.each_lane(gate, |cell, lane| cell.open(lane, bank));
        self.shared().iter().for_each(|pairs| pairs[bank].open());
    }

    /// Adds up a frozen bank: calls `put` with each counter's word in `self.last` and its sum.
    ///
    /// Returns the part of all sums that is in lanes.
    fn add_up(&self, gate: GateState, bank: usize, put: impl Fn(&AtomicI64, i64)) -> i64 {
        let len = self.len();
        if len < BLOCK {
            return (0..len).fold(0, |all, first| {
                all.wrapping_add(self.add_up_block::<1>(gate, bank, first, &put))
            });
        }
        // Lanes are far apart, and cells of one lane are side by side.
        (0..len).step_by(BLOCK).fold(0, |all, first| {
            all.wrapping_add(self.add_up_block::<BLOCK>(gate, bank, first, &put))
        })
    }

    /// Adds up at most `LEN` counters from `first` on.
    fn add_up_block<const LEN: usize>(
        &self,
        gate: GateState,
        bank: usize,
        first: usize,
        put: &impl Fn(&AtomicI64, i64),
    ) -> i64 {
        let mut sums = [0i64; LEN];
        if let Some(item) = gate.item() {
            for lane in lanes() {
                for (sum, index) in sums.iter_mut().zip(first..self.len()) {
                    *sum = sum.wrapping_add(CounterCell::of(item, index).count(lane, bank));
                }
            }
        }
        for (&sum, index) in sums.iter().zip(first..self.len()) {
            let shared = self.shared()[index][bank].load().count;
            put(&self.last()[index], sum.wrapping_add(shared));
        }
        sums.into_iter().fold(0, i64::wrapping_add)
    }
}

/// Returns the lanes in use.
///
/// Their number is read after each change of the gate, so it includes every lane that an add may
/// have used.
fn lanes() -> core::ops::RangeInclusive<usize> {
    1..=table::in_use()
}

/// The exact values of counters at one instant, while their lock is held.
///
/// They are no array on the stack, which may be too small for it.
pub(super) struct Sums<'a> {
    values: Values<'a>,
    _guard: Guard<'a>,
}

enum Values<'a> {
    /// The values that the last flip has stored.
    Last(&'a [AtomicI64]),
    /// The value of a single counter, in shared mode.
    One(i64),
}

impl Sums<'_> {
    /// Returns the value of counter `index`.
    pub(super) fn of(&self, index: usize) -> i64 {
        match self.values {
            // Relaxed: only holders of the lock access the words.
            Values::Last(last) => last[index].load(Relaxed),
            Values::One(value) => value,
        }
    }
}

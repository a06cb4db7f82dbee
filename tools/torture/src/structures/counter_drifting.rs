//! A counter that threads with lanes raise and threads without lanes lower.
//!
//! The lanes and the shared lane drift apart forever, while their sum stays small. A sum that reads
//! them at different moments is far off.

use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use thiscpu::Counter;

use super::{Actor, Structure, quiescent};
use crate::violation::{Checked, equal, holds, within};

/// The greatest value.
const HIGH: i64 = 256;

pub(super) struct DriftingLanes {
    counter: Counter,
    /// The amount that may still be added.
    ///
    /// SeqCst, as for `removable`: an amount is taken from one before the counter changes, and
    /// given to the other afterwards, so the value never leaves its range.
    addable: AtomicI64,
    /// The amount that was added and may be removed.
    removable: AtomicI64,
}

impl DriftingLanes {
    pub(super) fn new() -> Self {
        let (addable, removable) = (AtomicI64::new(HIGH), AtomicI64::new(0));
        DriftingLanes { counter: Counter::with_batch(2), addable, removable }
    }

    /// Moves `n` from one amount to the other, and adds `sign * n` to the counter in between.
    fn shift(&self, from: &AtomicI64, to: &AtomicI64, sign: i64, n: i64) -> bool {
        let without_n = |amount: i64| (amount >= n).then(|| amount - n);
        if from.fetch_update(SeqCst, SeqCst, without_n).is_err() {
            return false;
        }
        self.counter.add(sign * n);
        to.fetch_add(n, SeqCst);
        true
    }

    fn check_sum(&self) -> Checked<i64> {
        let sum = self.counter.sum();
        within("a sum", (0, HIGH), sum).map(|()| sum)
    }

    fn check_bounds(&self) -> Checked {
        let bounds = self.counter.bounds();
        within("the upper bound", (0, i64::MAX), bounds.high)?;
        within("the lower bound", (i64::MIN, HIGH), bounds.low)
    }
}

impl Structure for DriftingLanes {
    fn step(&self, actor: &mut Actor) -> Checked {
        if actor.random.u8(..32) == 0 {
            return actor.exactly(self.check_sum());
        }
        // Sometimes the other way, so that it goes on if all threads have lanes, or none.
        let raises = actor.has_lane != (actor.random.u8(..16) == 0);
        for _ in 0..200 {
            let n = actor.random.i64(1..20);
            let shifted = match raises {
                true => self.shift(&self.addable, &self.removable, 1, n),
                false => self.shift(&self.removable, &self.addable, -1, n),
            };
            actor.ops += 1 + u64::from(shifted);
            self.check_bounds()?;
        }
        Ok(())
    }

    fn step_in_handler(&self, actor: &mut Actor) -> Checked {
        actor.ops += 1;
        self.check_bounds()
    }

    fn check_in_child(&self, actor: &mut Actor) -> Checked {
        quiescent::check_changes(&self.counter, self.check_sum()?, actor)
    }

    fn verify(&mut self) -> Checked {
        let removable = *self.removable.get_mut();
        equal("the addable and the removable amount", HIGH, removable + *self.addable.get_mut())?;
        holds("its bounds are finite", quiescent::has_finite_bounds(&self.counter))?;
        quiescent::check_value(&self.counter, removable)
    }
}

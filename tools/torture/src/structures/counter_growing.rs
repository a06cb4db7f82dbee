//! A counter that only grows: no answer is below an earlier one.

use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use thiscpu::Counter;

use super::{Actor, Structure, quiescent};
use crate::oracle::{Amounts, Oracle};
use crate::violation::{Checked, holds, within};

pub(super) struct Growing {
    counter: Counter,
    oracle: Oracle,
    /// The largest exact answer so far.
    ///
    /// SeqCst: a check that begins after another has ended sees its answer.
    seen: AtomicI64,
}

impl Growing {
    pub(super) fn new(slots: usize) -> Self {
        // The smallest batch: every few adds move a window, always in one direction.
        let counter = Counter::with_batch(2);
        Growing { counter, oracle: Oracle::new(slots), seen: AtomicI64::new(0) }
    }

    fn add(&self, adds: usize, actor: &mut Actor) {
        let n = actor.random.i64(1..100);
        self.oracle.add(actor.slot, Amounts::of((0..adds).map(|_| n)), || {
            (0..adds).for_each(|_| self.counter.add(n));
        });
        actor.ops += adds as u64;
    }

    fn check_sum(&self) -> Checked<i64> {
        let seen = self.seen.load(SeqCst);
        let ((low, high), sum) = self.oracle.around(|| self.counter.sum());
        self.seen.fetch_max(sum, SeqCst);
        within("a sum", (low, high), sum)?;
        within("a sum after an earlier one", (seen, i64::MAX), sum).map(|()| sum)
    }

    fn check_bounds(&self) -> Checked {
        let seen = self.seen.load(SeqCst);
        let ((low, high), bounds) = self.oracle.around(|| self.counter.bounds());
        within("the upper bound", (low.max(seen), i64::MAX), bounds.high)?;
        within("the lower bound", (i64::MIN, high), bounds.low)
    }

    fn check_comparison(&self) -> Checked {
        let seen = self.seen.load(SeqCst);
        let above = self.counter.compare(seen - 1).ordering.is_gt();
        holds("the value has not shrunk", above)
    }
}

impl Structure for Growing {
    fn step(&self, actor: &mut Actor) -> Checked {
        match actor.random.u8(..32) {
            0..3 => actor.exactly(self.check_sum())?,
            3 => actor.counted(self.check_comparison())?,
            4..8 => actor.counted(self.check_bounds())?,
            _ => self.add(1 << actor.random.u8(..8), actor),
        }
        Ok(())
    }

    fn step_in_handler(&self, actor: &mut Actor) -> Checked {
        self.add(actor.random.usize(1..4), actor);
        self.check_bounds()
    }

    fn check_in_child(&self, actor: &mut Actor) -> Checked {
        quiescent::check_changes(&self.counter, self.check_sum()?, actor)
    }

    fn verify(&mut self) -> Checked {
        holds("its bounds are finite", quiescent::has_finite_bounds(&self.counter))?;
        quiescent::check_value(&self.counter, self.oracle.settled())
    }
}

//! A counter that is set while other threads add to it.
//!
//! The value that a `set` replaces is unknown. So each call sets a number of its own, far from all
//! others, and a sum shows which number it counts from.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};

use thiscpu::Counter;

use super::{Actor, Structure, quiescent};
use crate::oracle::{Amounts, Oracle, Range};
use crate::violation::{Checked, equal, within};

/// The distance between two such numbers: more than is added between two calls.
const DISTANCE: i64 = 1 << 32;

#[derive(Default)]
pub(super) struct SetCounter {
    counter: Counter,
    /// Of the amounts added since the start.
    oracle: Oracle,
    /// Held by the only thread that sets, so that calls take effect in their order.
    is_setting: AtomicBool,
    begun: AtomicI64,
    done: AtomicI64,
    /// The range of the amounts added when the last call took effect.
    added_low: AtomicI64,
    added_high: AtomicI64,
}

/// The last call, if none is running.
#[derive(Clone, Copy)]
struct Last {
    number: i64,
    added: Range,
}

impl SetCounter {
    pub(super) fn new(slots: usize) -> Self {
        SetCounter { oracle: Oracle::new(slots), ..SetCounter::default() }
    }

    fn add(&self, adds: usize, actor: &mut Actor) {
        self.oracle.add(actor.slot, Amounts::of((0..adds).map(|_| 1)), || {
            (0..adds).for_each(|_| self.counter.inc());
        });
        actor.ops += adds as u64;
    }

    /// Sets the next number, unless another thread is setting one.
    fn set(&self) -> bool {
        // SeqCst, here and in `last` and `check_sum`: these words are written in one order and read
        // in the other.
        if self.is_setting.swap(true, SeqCst) {
            return false;
        }
        let number = self.begun.fetch_add(1, SeqCst) + 1;
        let ((low, high), ()) = self.oracle.around(|| self.counter.set(DISTANCE * number));
        self.added_low.store(low, SeqCst);
        self.added_high.store(high, SeqCst);
        self.done.store(number, SeqCst);
        self.is_setting.store(false, SeqCst);
        true
    }

    fn last(&self) -> Option<Last> {
        let number = self.done.load(SeqCst);
        let added = (self.added_low.load(SeqCst), self.added_high.load(SeqCst));
        (self.begun.load(SeqCst) == number).then_some(Last { number, added })
    }

    fn check_sum(&self) -> Checked<i64> {
        let last = self.last();
        let done = self.done.load(SeqCst);
        let ((low, high), sum) = self.oracle.around(|| self.counter.sum());
        let begun = self.begun.load(SeqCst);
        within("the number that a sum counts from", (done, begun), sum.div_euclid(DISTANCE))?;
        within("the amount added since", (0, high), sum.rem_euclid(DISTANCE))?;
        if let Some(Last { number, added }) = last.filter(|last| last.number == begun) {
            let range = (low - added.1, high - added.0);
            within("the amount added since that call", range, sum - DISTANCE * number)?;
        }
        Ok(sum)
    }
}

impl Structure for SetCounter {
    fn step(&self, actor: &mut Actor) -> Checked {
        match actor.random.u8(..64) {
            0 => actor.ops += u64::from(self.set()),
            1..5 => actor.exactly(self.check_sum())?,
            _ => self.add(1 << actor.random.u8(..7), actor),
        }
        Ok(())
    }

    fn step_in_handler(&self, actor: &mut Actor) -> Checked {
        self.add(1, actor);
        let bounds = self.counter.bounds();
        within("an estimate within its bounds", (bounds.low, bounds.high), bounds.estimate)
    }

    fn check_in_child(&self, actor: &mut Actor) -> Checked {
        quiescent::check_changes(&self.counter, self.check_sum()?, actor)
    }

    fn verify(&mut self) -> Checked {
        let sum = self.check_sum()?;
        quiescent::check_value(&self.counter, sum)?;
        self.counter.set(-1);
        equal("the value set last", -1, self.counter.sum())
    }
}

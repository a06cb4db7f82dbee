//! A counter that threads add to, sum, compare and take from.

use std::cmp::Ordering;

use fastrand::Rng;
use thiscpu::Counter;

use super::{Actor, Structure, quiescent};
use crate::oracle::{Amounts, Oracle, Range, Takes, minus};
use crate::violation::{Checked, equal, holds, within};

pub(super) struct SingleCounter {
    counter: Counter,
    oracle: Oracle,
    takes: Takes,
    /// Whether amounts are of any size, so that the value is known only in the end.
    wraps: bool,
}

/// The largest amount for a counter that does not wrap around: 2^40 adds do not overflow it.
const AMOUNT_MAX: i64 = 1 << 22;

impl SingleCounter {
    pub(super) fn new(counter: Counter, slots: usize) -> Self {
        let (oracle, takes) = (Oracle::new(slots), Takes::default());
        SingleCounter { counter, oracle, takes, wraps: false }
    }

    pub(super) fn wrapping(counter: Counter, slots: usize) -> Self {
        SingleCounter { wraps: true, ..SingleCounter::new(counter, slots) }
    }

    /// Returns an amount: mostly 1 or -1, sometimes one that moves windows.
    fn amount(&self, random: &mut Rng) -> i64 {
        match random.u8(..32) {
            0..14 => 1,
            14..26 => -1,
            26..28 => random.i64(-1000..1000),
            28 => 32_768,
            29 => -32_768,
            30 if self.wraps => random.i64(..),
            31 if self.wraps => [i64::MAX, i64::MIN, -i64::MAX][random.usize(..3)],
            _ => random.i64(-AMOUNT_MAX..AMOUNT_MAX),
        }
    }

    fn add(&self, adds: usize, actor: &mut Actor) {
        let mut random = actor.random.clone();
        let amounts = Amounts::of((0..adds).map(|_| self.amount(&mut actor.random)));
        self.oracle.add(actor.slot, amounts, || {
            (0..adds).for_each(|_| self.counter.add(self.amount(&mut random)));
        });
        actor.ops += adds as u64;
    }

    /// Returns the answer of `ask`, and the range of the value meanwhile, if that is known.
    fn around<R>(&self, ask: impl FnOnce() -> R) -> (Option<Range>, R) {
        let before = self.takes.steady();
        let (range, answer) = self.oracle.around(ask);
        let steady = before.filter(|&before| !self.wraps && self.takes.is_still(before));
        (steady.map(|steady| minus(range, steady.amount)), answer)
    }

    fn check_sum(&self) -> Checked<i64> {
        match self.around(|| self.counter.sum()) {
            (Some(range), sum) => within("a sum", range, sum).map(|()| sum),
            (None, sum) => Ok(sum),
        }
    }

    fn check_bounds(&self) -> Checked {
        let (range, bounds) = self.around(|| self.counter.bounds());
        within("an estimate within its bounds", (bounds.low, bounds.high), bounds.estimate)?;
        let Some((low, high)) = range else { return Ok(()) };
        within("the upper bound", (low, i64::MAX), bounds.high)?;
        within("the lower bound", (i64::MIN, high), bounds.low)
    }

    fn check_comparison(&self, actor: &mut Actor) -> Checked {
        actor.ops += 1;
        let rhs = self.counter.read().wrapping_add(actor.random.i64(-200..200));
        let (range, compared) = self.around(|| self.counter.compare(rhs));
        let exact = compared.exact.is_none_or(|exact| exact.cmp(&rhs) == compared.ordering);
        holds("the value and order of a comparison agree", exact)?;
        let Some((low, high)) = range else { return Ok(()) };
        within("a comparison's value", (low, high), compared.exact.unwrap_or(low))?;
        match compared.ordering {
            Ordering::Less => {
                within("the number that the value is less than", (low + 1, i64::MAX), rhs)
            }
            Ordering::Equal => within("the number that the value equals", (low, high), rhs),
            Ordering::Greater => {
                within("the number that the value exceeds", (i64::MIN, high - 1), rhs)
            }
        }
    }

    fn check_take(&self) -> Checked {
        let (range, taken) = self.oracle.around(|| self.takes.take(|| self.counter.take()));
        match taken {
            Some((before, amount)) if !self.wraps => {
                within("the value taken", minus(range, before.amount), amount)
            }
            _ => Ok(()),
        }
    }
}

impl Structure for SingleCounter {
    fn step(&self, actor: &mut Actor) -> Checked {
        match actor.random.u8(..64) {
            0..4 => actor.exactly(self.check_sum())?,
            4..6 => actor.exactly(self.check_take())?,
            6..9 => self.check_comparison(actor)?,
            9..18 => actor.counted(self.check_bounds())?,
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
        let taken = self.takes.steady().map_or(0, |steady| steady.amount);
        let value = self.oracle.settled().wrapping_sub(taken);
        holds("its bounds are finite", self.wraps || quiescent::has_finite_bounds(&self.counter))?;
        quiescent::check_value(&self.counter, value)?;
        equal("the value taken in the end", value, self.counter.take())?;
        equal("the value left in the end", 0, self.counter.sum())
    }
}

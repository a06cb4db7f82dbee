//! A word and a counter that threads add to in a loop, so that most interruptions hit a section, at
//! each of its instructions in turn.

use std::time::{Duration, Instant};

use thiscpu::{Counter, PerCpu};

use super::{Actor, Structure, quiescent};
use crate::oracle::{Amounts, Oracle, Tally};
use crate::violation::{Checked, equal, within};

/// The greatest length of a loop.
///
/// It is a time, because a number of adds would take an emulated CPU milliseconds, during which no
/// other structure would make progress.
const MICROS_MAX: u64 = 50;
/// The number of adds between readings of the clock.
const ADDS_PER_CHECK: u64 = 500;

pub(super) struct AddLoop {
    word: PerCpu<u64>,
    /// What each worker added to the word.
    added: Tally,
    counter: Counter,
    oracle: Oracle,
}

impl AddLoop {
    pub(super) fn new(slots: usize) -> Self {
        AddLoop {
            word: PerCpu::new(),
            added: Tally::new(slots),
            counter: Counter::new(),
            oracle: Oracle::new(slots),
        }
    }

    fn add_to_word(&self, actor: &mut Actor, adds: u64) {
        (0..adds).for_each(|_| self.word.add(1));
        self.added.add(actor.slot, adds);
        actor.ops += adds;
    }

    fn add_to_counter(&self, actor: &mut Actor, adds: u64) {
        self.oracle.add(actor.slot, Amounts::of([adds as i64]), || {
            (0..adds).for_each(|_| self.counter.inc());
        });
        actor.ops += adds;
    }

    fn check_sum(&self) -> Checked<i64> {
        let (range, sum) = self.oracle.around(|| self.counter.sum());
        within("a sum", range, sum).map(|()| sum)
    }

    fn total(&self) -> u64 {
        self.word.lanes().fold(0, u64::wrapping_add)
    }
}

impl Structure for AddLoop {
    fn step(&self, actor: &mut Actor) -> Checked {
        if actor.random.u8(..16) == 0 {
            return actor.exactly(self.check_sum());
        }
        let (began, long) = (Instant::now(), Duration::from_micros(actor.random.u64(..MICROS_MAX)));
        let add = if actor.random.bool() { Self::add_to_word } else { Self::add_to_counter };
        while began.elapsed() < long {
            add(self, actor, ADDS_PER_CHECK);
        }
        Ok(())
    }

    fn step_in_handler(&self, actor: &mut Actor) -> Checked {
        self.add_to_word(actor, 1);
        self.add_to_counter(actor, 1);
        Ok(())
    }

    fn check_in_child(&self, actor: &mut Actor) -> Checked {
        let sum = self.check_sum()?;
        let total = self.total();
        self.add_to_word(actor, 1000);
        equal("the total of all lanes in a child", total as i64 + 1000, self.total() as i64)?;
        quiescent::check_changes(&self.counter, sum, actor)
    }

    fn verify(&mut self) -> Checked {
        equal("the total of all lanes", self.added.total() as i64, self.total() as i64)?;
        quiescent::check_value(&self.counter, self.oracle.settled())
    }
}

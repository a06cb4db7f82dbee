//! A word and a counter that threads do nothing but add to for a while, so that whatever interrupts
//! them mostly does so in a section, at each of its instructions in turn.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use thiscpu::{Counter, PerCpu};

use super::{Actor, Structure, alone};
use crate::books::{Amounts, Books};
use crate::wrong::{Checked, equal, within};

/// For how long at most. By the clock, because an emulated CPU does in milliseconds what others do in
/// this time, and then nobody else would get far.
const MICROS_MAX: u64 = 50;
/// How many adds there are between looks at the clock.
const ADDS_PER_LOOK: u64 = 500;

pub(super) struct Hot {
    word: PerCpu<u64>,
    /// What each worker added to the word. Relaxed: read when all have ended.
    added: Box<[AtomicU64]>,
    counter: Counter,
    books: Books,
}

impl Hot {
    pub(super) fn new(slots: usize) -> Self {
        Hot {
            word: PerCpu::new(),
            added: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            counter: Counter::new(),
            books: Books::new(slots),
        }
    }

    fn heat_word(&self, actor: &mut Actor, adds: u64) {
        (0..adds).for_each(|_| self.word.add(1));
        self.added[actor.slot].fetch_add(adds, Relaxed);
        actor.ops += adds;
    }

    fn heat_counter(&self, actor: &mut Actor, adds: u64) {
        self.books.add(actor.slot, Amounts::of([adds as i64]), || {
            (0..adds).for_each(|_| self.counter.inc());
        });
        actor.ops += adds;
    }

    fn check_sum(&self) -> Checked<i64> {
        let (range, sum) = self.books.around(|| self.counter.sum());
        within("a sum", range, sum).map(|()| sum)
    }

    fn total(&self) -> u64 {
        self.word.lanes().fold(0, u64::wrapping_add)
    }
}

impl Structure for Hot {
    fn name(&self) -> &'static str {
        "hot"
    }

    fn turn(&self, actor: &mut Actor) -> Checked {
        if actor.random.u8(..16) == 0 {
            return actor.exactly(self.check_sum()).map(drop);
        }
        let (began, long) = (Instant::now(), Duration::from_micros(actor.random.u64(..MICROS_MAX)));
        let heat = if actor.random.bool() { Self::heat_word } else { Self::heat_counter };
        while began.elapsed() < long {
            heat(self, actor, ADDS_PER_LOOK);
        }
        Ok(())
    }

    fn interrupt(&self, actor: &mut Actor) -> Checked {
        self.heat_word(actor, 1);
        self.heat_counter(actor, 1);
        Ok(())
    }

    fn child(&self, actor: &mut Actor) -> Checked {
        let sum = self.check_sum()?;
        let total = self.total();
        self.heat_word(actor, 1000);
        equal("a child's total of all lanes", total as i64 + 1000, self.total() as i64)?;
        alone::goes_on(&self.counter, sum, actor)
    }

    fn account(&mut self) -> Checked {
        let added: u64 = self.added.iter().map(|added| added.load(Relaxed)).sum();
        equal("the total of all lanes", added as i64, self.total() as i64)?;
        alone::settled(&self.counter, self.books.settled())
    }
}

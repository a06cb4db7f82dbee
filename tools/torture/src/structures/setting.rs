//! A counter that is set while others add to it. What a `set` replaces is nobody's to know, so each
//! sets a number of its own, far from all others: a sum tells which it counts from.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};

use thiscpu::Counter;

use super::{Actor, Structure, alone};
use crate::books::{Amounts, Books, Range};
use crate::wrong::{Checked, equal, within};

/// The distance between what is set: more than is added between two sets.
const FAR: i64 = 1 << 32;

pub(super) struct Setting {
    counter: Counter,
    /// What was added since the beginning.
    books: Books,
    /// One at a time, so that sets take effect in their order.
    is_setting: AtomicBool,
    begun: AtomicI64,
    done: AtomicI64,
    /// What had been added at most and at least when the last set took effect.
    added_low: AtomicI64,
    added_high: AtomicI64,
}

/// The last set, when none is under way.
#[derive(Clone, Copy)]
struct Last {
    number: i64,
    added: Range,
}

impl Setting {
    pub(super) fn new(slots: usize) -> Self {
        Setting {
            counter: Counter::new(),
            books: Books::new(slots),
            is_setting: AtomicBool::new(false),
            begun: AtomicI64::new(0),
            done: AtomicI64::new(0),
            added_low: AtomicI64::new(0),
            added_high: AtomicI64::new(0),
        }
    }

    fn add(&self, actor: &mut Actor, adds: usize) {
        self.books.add(actor.slot, Amounts::of((0..adds).map(|_| 1)), || {
            (0..adds).for_each(|_| self.counter.inc());
        });
        actor.ops += adds as u64;
    }

    /// Sets the next number, unless somebody else is setting one.
    fn set(&self) -> bool {
        // SeqCst throughout: the four words are written in one order and read in the other.
        if self.is_setting.swap(true, SeqCst) {
            return false;
        }
        let number = self.begun.fetch_add(1, SeqCst) + 1;
        let ((low, high), ()) = self.books.around(|| self.counter.set(FAR * number));
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
        let ((low, high), sum) = self.books.around(|| self.counter.sum());
        let begun = self.begun.load(SeqCst);
        within("the number a sum counts from", (done, begun), sum.div_euclid(FAR))?;
        within("what was added since", (0, high), sum.rem_euclid(FAR))?;
        if let Some(Last { number, added }) = last.filter(|last| last.number == begun) {
            let range = (low - added.1, high - added.0);
            within("what was added since that set", range, sum - FAR * number)?;
        }
        Ok(sum)
    }
}

impl Structure for Setting {
    fn name(&self) -> &'static str {
        "counter_set"
    }

    fn turn(&self, actor: &mut Actor) -> Checked {
        match actor.random.u8(..64) {
            0 => {
                let set = self.set();
                actor.ops += u64::from(set);
                Ok(())
            }
            1..5 => actor.exactly(self.check_sum()).map(drop),
            _ => {
                let adds = 1 << actor.random.u8(..7);
                self.add(actor, adds);
                Ok(())
            }
        }
    }

    fn interrupt(&self, actor: &mut Actor) -> Checked {
        self.add(actor, 1);
        let bounds = self.counter.bounds();
        within("a read among its bounds", (bounds.low, bounds.high), bounds.estimate)
    }

    fn child(&self, actor: &mut Actor) -> Checked {
        let sum = self.check_sum()?;
        alone::goes_on(&self.counter, sum, actor)
    }

    fn account(&mut self) -> Checked {
        let sum = self.check_sum()?;
        alone::settled(&self.counter, sum)?;
        self.counter.set(-1);
        equal("what was set at last", -1, self.counter.sum())
    }
}

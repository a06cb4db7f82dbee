//! Several counters at one instant: what is paid is received a moment later.

use thiscpu::Counters;

use super::{Actor, LEVELS, Structure};
use crate::books::{Amounts, Books};
use crate::wrong::{Checked, equal, within};

const PAID: usize = 0;
const RECEIVED: usize = 1;
const OTHER: usize = 2;
/// The most that is paid at once.
const PAYMENT_MAX: i64 = 5;

pub(super) struct Several {
    counters: Counters<3>,
    /// On each counter.
    books: [Books; 3],
    /// How much can be paid and not yet received.
    under_way_max: i64,
}

impl Several {
    pub(super) fn new(slots: usize) -> Self {
        Several {
            counters: Counters::new(),
            books: [0; 3].map(|_| Books::new(slots)),
            under_way_max: (slots * LEVELS) as i64 * PAYMENT_MAX,
        }
    }

    fn add(&self, actor: &mut Actor, index: usize, n: i64) {
        let add = || self.counters.add(index, n);
        self.books[index].add(actor.slot, Amounts::of([n]), add);
        actor.ops += 1;
    }

    fn pay(&self, actor: &mut Actor) {
        let n = actor.random.i64(1..=PAYMENT_MAX);
        self.add(actor, PAID, n);
        self.add(actor, RECEIVED, n);
    }

    fn check_snapshot(&self) -> Checked<[i64; 3]> {
        let [first, second, third] = &self.books;
        let ask = || third.around(|| self.counters.snapshot());
        let (paid, (received, (other, snapshot))) = first.around(|| second.around(ask));
        within("what was paid", paid, snapshot[PAID])?;
        within("what was received", received, snapshot[RECEIVED])?;
        within("what was counted besides", other, snapshot[OTHER])?;
        let under_way = snapshot[PAID] - snapshot[RECEIVED];
        within("what is paid and not received", (0, self.under_way_max), under_way)?;
        Ok(snapshot)
    }

    fn check_sum(&self, index: usize) -> Checked {
        let (range, sum) = self.books[index].around(|| self.counters.sum(index));
        within("the sum of one of several", range, sum)
    }
}

impl Structure for Several {
    fn name(&self) -> &'static str {
        "counters"
    }

    fn turn(&self, actor: &mut Actor) -> Checked {
        match actor.random.u8(..64) {
            0..5 => actor.exactly(self.check_snapshot()).map(drop),
            5 => {
                let index = actor.random.usize(..3);
                actor.exactly(self.check_sum(index))
            }
            6..24 => {
                let n = actor.random.i64(-70_000..70_000);
                self.add(actor, OTHER, n);
                Ok(())
            }
            _ => {
                (0..1 << actor.random.u8(..6)).for_each(|_| self.pay(actor));
                Ok(())
            }
        }
    }

    fn interrupt(&self, actor: &mut Actor) -> Checked {
        self.pay(actor);
        self.counters.read(OTHER);
        Ok(())
    }

    fn child(&self, actor: &mut Actor) -> Checked {
        let mut expected = self.check_snapshot()?;
        for _ in 0..300 {
            let (index, n) = (actor.random.usize(..3), actor.random.i64(-40_000..40_000));
            self.counters.add(index, n);
            expected[index] += n;
        }
        let snapshot = self.counters.snapshot();
        (0..3).try_for_each(|index| equal("a snapshot", expected[index], snapshot[index]))
    }

    fn account(&mut self) -> Checked {
        let snapshot = self.counters.snapshot();
        for (index, books) in self.books.iter().enumerate() {
            equal("the last snapshot", books.settled(), snapshot[index])?;
            equal("the last sum", books.settled(), self.counters.sum(index))?;
        }
        Ok(())
    }
}

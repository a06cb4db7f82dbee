//! A group of counters, read at one instant: each payment is received a moment later.

use thiscpu::Counters;

use super::{Actor, LEVELS, Structure};
use crate::oracle::{Amounts, Oracle};
use crate::violation::{Checked, equal, within};

const PAID: usize = 0;
const RECEIVED: usize = 1;
const OTHER: usize = 2;
/// The largest payment.
const PAYMENT_MAX: i64 = 5;

pub(super) struct Group {
    counters: Counters<3>,
    /// One for each counter.
    oracles: [Oracle; 3],
    /// The most that can be paid and not yet received.
    in_flight_max: i64,
}

impl Group {
    pub(super) fn new(slots: usize) -> Self {
        Group {
            counters: Counters::new(),
            oracles: [0; 3].map(|_| Oracle::new(slots)),
            in_flight_max: (slots * LEVELS) as i64 * PAYMENT_MAX,
        }
    }

    fn add(&self, actor: &mut Actor, index: usize, n: i64) {
        let add = || self.counters.add(index, n);
        self.oracles[index].add(actor.slot, Amounts::of([n]), add);
        actor.ops += 1;
    }

    fn pay(&self, actor: &mut Actor) {
        let n = actor.random.i64(1..=PAYMENT_MAX);
        self.add(actor, PAID, n);
        self.add(actor, RECEIVED, n);
    }

    fn check_snapshot(&self) -> Checked<[i64; 3]> {
        let [first, second, third] = &self.oracles;
        let ask = || third.around(|| self.counters.snapshot());
        let (paid, (received, (other, snapshot))) = first.around(|| second.around(ask));
        within("the sum of payments", paid, snapshot[PAID])?;
        within("the sum of receipts", received, snapshot[RECEIVED])?;
        within("the sum of other amounts", other, snapshot[OTHER])?;
        let in_flight = snapshot[PAID] - snapshot[RECEIVED];
        within("payments not yet received", (0, self.in_flight_max), in_flight)?;
        Ok(snapshot)
    }

    fn check_sum(&self, index: usize) -> Checked {
        let (range, sum) = self.oracles[index].around(|| self.counters.sum(index));
        within("the sum of one counter of a group", range, sum)
    }
}

impl Structure for Group {
    fn step(&self, actor: &mut Actor) -> Checked {
        match actor.random.u8(..64) {
            0..5 => actor.exactly(self.check_snapshot())?,
            5 => {
                let index = actor.random.usize(..3);
                actor.exactly(self.check_sum(index))?;
            }
            6..24 => {
                let n = actor.random.i64(-70_000..70_000);
                self.add(actor, OTHER, n);
            }
            _ => (0..1 << actor.random.u8(..6)).for_each(|_| self.pay(actor)),
        }
        Ok(())
    }

    fn step_in_handler(&self, actor: &mut Actor) -> Checked {
        self.pay(actor);
        self.counters.read(OTHER);
        Ok(())
    }

    fn check_in_child(&self, actor: &mut Actor) -> Checked {
        let mut expected = self.check_snapshot()?;
        for _ in 0..300 {
            let (index, n) = (actor.random.usize(..3), actor.random.i64(-40_000..40_000));
            self.counters.add(index, n);
            expected[index] += n;
        }
        let snapshot = self.counters.snapshot();
        (0..3).try_for_each(|index| equal("a snapshot", expected[index], snapshot[index]))
    }

    fn verify(&mut self) -> Checked {
        let snapshot = self.counters.snapshot();
        for (index, oracle) in self.oracles.iter().enumerate() {
            equal("the last snapshot", oracle.settled(), snapshot[index])?;
            equal("the last sum", oracle.settled(), self.counters.sum(index))?;
        }
        Ok(())
    }
}

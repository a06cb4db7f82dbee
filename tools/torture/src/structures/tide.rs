//! A counter that threads with lanes raise and threads without lower, so that what lanes hold and
//! what the slow lane holds drift apart for ever while their sum stays small. Whoever looks at the
//! two at different moments is far off.

use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use thiscpu::Counter;

use super::{Actor, Structure, alone};
use crate::wrong::{Checked, equal, holds, within};

/// How high it may rise.
const HIGH: i64 = 256;

pub(super) struct Tide {
    counter: Counter,
    /// What may still be added. SeqCst, here and below: what is lowered was raised before, and what
    /// is raised was lowered before, so that the value is never out of its limits.
    room: AtomicI64,
    /// What was added and may be taken away.
    stock: AtomicI64,
}

impl Tide {
    pub(super) fn new() -> Self {
        let (room, stock) = (AtomicI64::new(HIGH), AtomicI64::new(0));
        Tide { counter: Counter::with_batch(2), room, stock }
    }

    /// Moves up to `n` from one to the other, adding it to the counter with `sign` in between.
    fn flow(&self, from: &AtomicI64, to: &AtomicI64, sign: i64, n: i64) -> bool {
        let all_of_it = |there: i64| (there >= n).then(|| there - n);
        if from.fetch_update(SeqCst, SeqCst, all_of_it).is_err() {
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

impl Structure for Tide {
    fn name(&self) -> &'static str {
        "counter_tide"
    }

    fn turn(&self, actor: &mut Actor) -> Checked {
        if actor.random.u8(..32) == 0 {
            return actor.exactly(self.check_sum()).map(drop);
        }
        // Now and then the other way, so that it goes on where all have lanes, or none.
        let rises = actor.has_lane != (actor.random.u8(..16) == 0);
        for _ in 0..200 {
            let n = actor.random.i64(1..20);
            let flowed = match rises {
                true => self.flow(&self.room, &self.stock, 1, n),
                false => self.flow(&self.stock, &self.room, -1, n),
            };
            actor.ops += 1 + u64::from(flowed);
            self.check_bounds()?;
        }
        Ok(())
    }

    fn interrupt(&self, actor: &mut Actor) -> Checked {
        actor.ops += 1;
        self.check_bounds()
    }

    fn child(&self, actor: &mut Actor) -> Checked {
        let sum = self.check_sum()?;
        alone::goes_on(&self.counter, sum, actor)
    }

    fn account(&mut self) -> Checked {
        let stock = *self.stock.get_mut();
        equal("what may be added and taken away", HIGH, stock + *self.room.get_mut())?;
        holds("its bounds are known", alone::has_known_bounds(&self.counter))?;
        alone::settled(&self.counter, stock)
    }
}

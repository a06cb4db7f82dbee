//! A token that anybody passes on: 1 is added, then taken away, so that the value is always 0 or 1
//! whatever a careless sum makes of it.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use thiscpu::Counter;

use super::{Actor, Structure, alone};
use crate::books::Range;
use crate::wrong::{Checked, holds, within};

pub(super) struct Token {
    name: &'static str,
    counter: Counter,
    /// Twice the number of passes, and one while somebody is passing it on.
    turn: AtomicU64,
}

impl Token {
    pub(super) fn new(name: &'static str, counter: Counter) -> Self {
        Token { name, counter, turn: AtomicU64::new(0) }
    }

    /// Passes the token on, unless somebody else does so right now. Whether it was passed.
    fn pass(&self) -> bool {
        // SeqCst here and below: the turn tells exactly how far the value is.
        let turn = self.turn.load(SeqCst);
        let taken = turn.is_multiple_of(2)
            && self.turn.compare_exchange(turn, turn + 1, SeqCst, SeqCst).is_ok();
        if taken {
            self.counter.add(if (turn / 2).is_multiple_of(2) { 1 } else { -1 });
            self.turn.store(turn + 2, SeqCst);
        }
        taken
    }

    /// What `ask` answers, and what the value was meanwhile: one number if nobody passed the token.
    fn around<R>(&self, ask: impl FnOnce() -> R) -> (Range, R) {
        let before = self.turn.load(SeqCst);
        let answer = ask();
        let value = (before / 2 % 2) as i64;
        match before.is_multiple_of(2) && self.turn.load(SeqCst) == before {
            true => ((value, value), answer),
            false => ((0, 1), answer),
        }
    }

    fn check_sum(&self) -> Checked<i64> {
        let (range, sum) = self.around(|| self.counter.sum());
        within("a sum", range, sum).map(|()| sum)
    }

    fn check_bounds(&self) -> Checked {
        let ((low, high), bounds) = self.around(|| self.counter.bounds());
        within("the upper bound", (low, i64::MAX), bounds.high)?;
        within("the lower bound", (i64::MIN, high), bounds.low)
    }

    fn check_comparisons(&self) -> Checked {
        holds("it is above -1", self.counter.compare(-1).ordering.is_gt())?;
        holds("it is below 2", self.counter.compare(2).ordering.is_lt())
    }
}

impl Structure for Token {
    fn name(&self) -> &'static str {
        self.name
    }

    fn turn(&self, actor: &mut Actor) -> Checked {
        match actor.random.u8(..64) {
            0..6 => actor.exactly(self.check_sum()).map(drop),
            6 => {
                actor.ops += 2;
                self.check_comparisons()
            }
            7..12 => {
                actor.ops += 1;
                self.check_bounds()
            }
            _ => {
                for _ in 0..1 << actor.random.u8(..7) {
                    actor.ops += u64::from(self.pass());
                    // Leaves the token to others, who are on other CPUs.
                    (0..actor.random.u8(..16)).for_each(|_| std::hint::spin_loop());
                }
                Ok(())
            }
        }
    }

    fn interrupt(&self, actor: &mut Actor) -> Checked {
        actor.ops += u64::from(self.pass());
        self.check_bounds()
    }

    fn child(&self, actor: &mut Actor) -> Checked {
        let sum = self.check_sum()?;
        alone::goes_on(&self.counter, sum, actor)
    }

    fn account(&mut self) -> Checked {
        alone::settled(&self.counter, (*self.turn.get_mut() / 2 % 2) as i64)
    }
}

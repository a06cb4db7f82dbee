//! A token that threads pass on: one adds 1, the next one subtracts 1, so the value is always 0 or
//! 1.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use thiscpu::Counter;

use super::{Actor, Structure, quiescent};
use crate::oracle::Range;
use crate::violation::{Checked, holds, within};

pub(super) struct Token {
    counter: Counter,
    /// Twice the number of passes, plus one while a thread is passing it on.
    phase: AtomicU64,
}

impl Token {
    pub(super) fn new(counter: Counter) -> Self {
        Token { counter, phase: AtomicU64::new(0) }
    }

    /// Passes the token on, unless another thread is doing so.
    ///
    /// Returns whether it passed the token.
    fn pass(&self) -> bool {
        // SeqCst, here and in `around`: the phase is odd before the counter changes, and even again
        // after it has changed.
        let phase = self.phase.load(SeqCst);
        let taken = phase.is_multiple_of(2)
            && self.phase.compare_exchange(phase, phase + 1, SeqCst, SeqCst).is_ok();
        if taken {
            self.counter.add(if (phase / 2).is_multiple_of(2) { 1 } else { -1 });
            self.phase.store(phase + 2, SeqCst);
        }
        taken
    }

    /// Returns the answer of `ask`, and the range of the value meanwhile.
    ///
    /// The range is one number if no thread passed the token.
    fn around<R>(&self, ask: impl FnOnce() -> R) -> (Range, R) {
        let before = self.phase.load(SeqCst);
        let answer = ask();
        let value = (before / 2 % 2) as i64;
        match before.is_multiple_of(2) && self.phase.load(SeqCst) == before {
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
        holds("the value is above -1", self.counter.compare(-1).ordering.is_gt())?;
        holds("the value is below 2", self.counter.compare(2).ordering.is_lt())
    }
}

impl Structure for Token {
    fn step(&self, actor: &mut Actor) -> Checked {
        match actor.random.u8(..64) {
            0..6 => actor.exactly(self.check_sum())?,
            6 => {
                actor.ops += 2;
                self.check_comparisons()?;
            }
            7..12 => actor.counted(self.check_bounds())?,
            _ => (0..1 << actor.random.u8(..7)).for_each(|_| {
                actor.ops += u64::from(self.pass());
                // Leaves the token to threads on other CPUs.
                (0..actor.random.u8(..16)).for_each(|_| std::hint::spin_loop());
            }),
        }
        Ok(())
    }

    fn step_in_handler(&self, actor: &mut Actor) -> Checked {
        actor.ops += u64::from(self.pass());
        self.check_bounds()
    }

    fn check_in_child(&self, actor: &mut Actor) -> Checked {
        quiescent::check_changes(&self.counter, self.check_sum()?, actor)
    }

    fn verify(&mut self) -> Checked {
        quiescent::check_value(&self.counter, (*self.phase.get_mut() / 2 % 2) as i64)
    }
}

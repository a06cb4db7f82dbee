//! Per-CPU words of each width: lanes hold what was added, minus what exchanges took out.

use thiscpu::{PerCpu, PerCpuInt};
use thiscpu_test_support::bits::Bits;

use super::{Actor, Structure};
use crate::oracle::Tally;
use crate::violation::{Checked, equal, holds};

/// Checks a total that may have wrapped around in `W`.
pub(super) fn check_total<W: Bits>(what: &'static str, expected: u64, found: u64) -> Checked {
    equal(what, W::of(expected).bits() as i64, W::of(found).bits() as i64)
}

pub(super) struct Words<T: PerCpuInt> {
    words: PerCpu<T>,
    /// What each worker added, minus what it took out.
    added: Tally,
}

impl<T: PerCpuInt + Bits> Words<T> {
    pub(super) fn new(slots: usize) -> Self {
        Words { words: PerCpu::new(), added: Tally::new(slots) }
    }

    fn total(&self) -> u64 {
        self.words.lanes().fold(0, |sum, word| sum.wrapping_add(word.bits()))
    }

    /// Runs one operation and returns the amount by which it raised the total.
    fn change(&self, actor: &mut Actor) -> Checked<u64> {
        actor.ops += 1;
        let n = actor.random.u64(..);
        match actor.random.u8(..8) {
            0 => Ok(0u64.wrapping_sub(self.words.xchg(T::of(0)).bits())),
            1 => Ok(T::of(n).bits().wrapping_sub(self.words.xchg(T::of(n)).bits())),
            2 | 3 => self.replace(n),
            4 | 5 => {
                self.words.add_return(T::of(n));
                Ok(n)
            }
            _ => {
                self.words.add(T::of(n));
                Ok(n)
            }
        }
    }

    /// Replaces the word by `n` with a few compare-exchanges, and returns the difference.
    fn replace(&self, n: u64) -> Checked<u64> {
        let mut old = T::of(0);
        for _ in 0..4 {
            match self.words.cmpxchg(old, T::of(n)) {
                Ok(()) => return Ok(n.wrapping_sub(old.bits())),
                Err(current) => {
                    holds("a failed exchange found another value", current != old)?;
                    old = current;
                }
            }
        }
        Ok(0)
    }

    fn change_times(&self, actor: &mut Actor, changes: usize) -> Checked {
        for _ in 0..changes {
            let n = self.change(actor)?;
            self.added.add(actor.slot, n);
        }
        Ok(())
    }
}

impl<T: PerCpuInt + Bits> Structure for Words<T> {
    fn step(&self, actor: &mut Actor) -> Checked {
        let changes = 1 << actor.random.u8(..8);
        self.change_times(actor, changes)
    }

    fn step_in_handler(&self, actor: &mut Actor) -> Checked {
        self.change_times(actor, 2)
    }

    fn check_in_child(&self, actor: &mut Actor) -> Checked {
        let mut expected = self.total();
        for _ in 0..300 {
            expected = expected.wrapping_add(self.change(actor)?);
        }
        check_total::<T>("the total of all lanes in a child", expected, self.total())
    }

    fn verify(&mut self) -> Checked {
        check_total::<T>("the total of all lanes", self.added.total(), self.total())
    }
}

//! Per-CPU pairs whose first words count exchanges, and whose second words follow from the first.

use thiscpu::{PairWord, PerCpuPair};
use thiscpu_test_support::bits::Bits;

use super::words::check_total;
use super::{Actor, Structure};
use crate::oracle::Tally;
use crate::violation::{Checked, equal};

pub(super) struct Pairs<W: PairWord> {
    pairs: PerCpuPair<W>,
    /// The number of exchanges of each worker.
    exchanges: Tally,
}

/// Returns the only valid pair with this first word.
///
/// (0, 0) is valid, because pairs begin with it.
fn pair<W: Bits>(first: u64) -> (W, W) {
    (W::of(first), W::of(W::of(first).bits().wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

impl<W: PairWord + Bits> Pairs<W> {
    pub(super) fn new(slots: usize) -> Self {
        Pairs { pairs: PerCpuPair::new(), exchanges: Tally::new(slots) }
    }

    fn check((first, second): (W, W)) -> Checked {
        let expected = pair::<W>(first.bits()).1;
        equal("the second word of a pair", expected.bits() as i64, second.bits() as i64)
    }

    /// Counts this CPU's pair up with a few attempts, and returns whether one succeeded.
    fn increment(&self, seen: &mut (W, W)) -> Checked<bool> {
        for _ in 0..4 {
            let next = pair(seen.0.bits().wrapping_add(1));
            match self.pairs.cmpxchg_double(*seen, next) {
                Ok(()) => {
                    *seen = next;
                    return Ok(true);
                }
                Err(current) => {
                    Self::check(current)?;
                    *seen = current;
                }
            }
        }
        Ok(false)
    }

    fn increment_times(&self, actor: &mut Actor, times: usize) -> Checked {
        let mut seen = pair(0);
        for _ in 0..times {
            let made = u64::from(self.increment(&mut seen)?);
            self.exchanges.add(actor.slot, made);
            actor.ops += made;
        }
        Ok(())
    }

    fn total(&self) -> u64 {
        self.pairs.lanes().fold(0, |sum, (first, _)| sum.wrapping_add(first.bits()))
    }
}

impl<W: PairWord + Bits> Structure for Pairs<W> {
    fn step(&self, actor: &mut Actor) -> Checked {
        let times = 1 << actor.random.u8(..8);
        self.increment_times(actor, times)
    }

    fn step_in_handler(&self, actor: &mut Actor) -> Checked {
        self.increment_times(actor, 1)
    }

    fn check_in_child(&self, _actor: &mut Actor) -> Checked {
        self.pairs.lanes().try_for_each(Self::check)?;
        let (mut expected, mut seen) = (self.total(), pair(0));
        for _ in 0..300 {
            expected = expected.wrapping_add(u64::from(self.increment(&mut seen)?));
        }
        check_total::<W>("exchanges of a child", expected, self.total())
    }

    fn verify(&mut self) -> Checked {
        self.pairs.lanes().try_for_each(Self::check)?;
        check_total::<W>("exchanges of all workers", self.exchanges.total(), self.total())
    }
}

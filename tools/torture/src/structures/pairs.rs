//! Per-CPU pairs whose second word follows from the first, and whose first words count exchanges.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use thiscpu::{HalfWord, PerCpuPair};

use super::{Actor, Structure};
use crate::wrong::{Checked, equal};

/// A half of some width.
pub(super) trait Half: HalfWord + Sync + Send + Copy + PartialEq {
    const NAME: &'static str;
    fn of(bits: u64) -> Self;
    fn bits(self) -> u64;
}

macro_rules! halves {
    ($($integer:ty => $name:literal),*) => {$(
        impl Half for $integer {
            const NAME: &'static str = $name;
            fn of(bits: u64) -> Self {
                bits as $integer
            }
            fn bits(self) -> u64 {
                u64::from(self)
            }
        }
    )*};
}

halves!(u32 => "pairs_u32", u64 => "pairs_u64");

pub(super) struct Pairs<W: Half> {
    pairs: PerCpuPair<W>,
    /// How many exchanges each worker made. Relaxed: read when all have ended.
    made: Box<[AtomicU64]>,
}

/// The one pair with this first word; (0, 0) is one, because pairs begin so.
fn pair<W: Half>(first: u64) -> (W, W) {
    (W::of(first), W::of(W::of(first).bits().wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

impl<W: Half> Pairs<W> {
    pub(super) fn new(slots: usize) -> Self {
        Pairs { pairs: PerCpuPair::new(), made: (0..slots).map(|_| AtomicU64::new(0)).collect() }
    }

    fn check((first, second): (W, W)) -> Checked {
        let expected = pair::<W>(first.bits()).1;
        equal("the second word of a pair", expected.bits() as i64, second.bits() as i64)
    }

    /// Counts this CPU's pair up, if that works within some attempts. Whether it did.
    fn count_up(&self, seen: &mut (W, W)) -> Checked<bool> {
        for _ in 0..4 {
            let next = pair(seen.0.bits().wrapping_add(1));
            match self.pairs.cmpxchg_double(*seen, next) {
                Ok(()) => {
                    *seen = next;
                    return Ok(true);
                }
                Err(there) => {
                    Self::check(there)?;
                    *seen = there;
                }
            }
        }
        Ok(false)
    }

    fn count_often(&self, actor: &mut Actor, times: usize) -> Checked {
        let mut seen = pair(0);
        for _ in 0..times {
            let made = u64::from(self.count_up(&mut seen)?);
            self.made[actor.slot].fetch_add(made, Relaxed);
            actor.ops += made;
        }
        Ok(())
    }

    fn total(&self) -> u64 {
        self.pairs.lanes().fold(0, |sum, (first, _)| sum.wrapping_add(first.bits()))
    }

    fn check_total(what: &'static str, expected: u64, found: u64) -> Checked {
        equal(what, W::of(expected).bits() as i64, W::of(found).bits() as i64)
    }
}

impl<W: Half> Structure for Pairs<W> {
    fn name(&self) -> &'static str {
        W::NAME
    }

    fn turn(&self, actor: &mut Actor) -> Checked {
        let times = 1 << actor.random.u8(..8);
        self.count_often(actor, times)
    }

    fn interrupt(&self, actor: &mut Actor) -> Checked {
        self.count_often(actor, 1)
    }

    fn child(&self, _actor: &mut Actor) -> Checked {
        self.pairs.lanes().try_for_each(Self::check)?;
        let (mut expected, mut seen) = (self.total(), pair(0));
        for _ in 0..300 {
            expected = expected.wrapping_add(u64::from(self.count_up(&mut seen)?));
        }
        Self::check_total("exchanges of a child", expected, self.total())
    }

    fn account(&mut self) -> Checked {
        self.pairs.lanes().try_for_each(Self::check)?;
        let made = self.made.iter().fold(0, |sum: u64, made| sum + made.load(Relaxed));
        Self::check_total("exchanges of all", made, self.total())
    }
}

//! Per-CPU words of each width: what was added is what lanes hold and what exchanges took out.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use thiscpu::{Integer, PerCpu};

use super::{Actor, Structure};
use crate::wrong::{Checked, equal, holds};

/// A word of some width, and its low bits as a number.
pub(super) trait Width: Integer + Sync + Send + PartialEq {
    const NAME: &'static str;
    fn of(bits: u64) -> Self;
    fn bits(self) -> u64;
}

macro_rules! widths {
    ($($integer:ty => $name:literal),*) => {$(
        impl Width for $integer {
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

widths!(u8 => "words_u8", u16 => "words_u16", u32 => "words_u32", u64 => "words_u64");

pub(super) struct Words<T: Width> {
    words: PerCpu<T>,
    /// What each worker added and did not take out again. Relaxed: read when all have ended.
    added: Box<[AtomicU64]>,
}

impl<T: Width> Words<T> {
    pub(super) fn new(slots: usize) -> Self {
        Words { words: PerCpu::new(), added: (0..slots).map(|_| AtomicU64::new(0)).collect() }
    }

    fn total(&self) -> u64 {
        self.words.lanes().fold(0, |sum, word| sum.wrapping_add(word.bits()))
    }

    /// One operation, and by how much it raised the total.
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

    /// A compare-exchange from what the word may be.
    fn replace(&self, n: u64) -> Checked<u64> {
        let mut old = T::of(0);
        for _ in 0..4 {
            match self.words.cmpxchg(old, T::of(n)) {
                Ok(()) => return Ok(n.wrapping_sub(old.bits())),
                Err(there) => {
                    holds("a failed exchange found something else", there != old)?;
                    old = there;
                }
            }
        }
        Ok(0)
    }

    fn change_often(&self, actor: &mut Actor, changes: usize) -> Checked {
        for _ in 0..changes {
            let n = self.change(actor)?;
            self.added[actor.slot].fetch_add(n, Relaxed);
        }
        Ok(())
    }

    fn check_total(what: &'static str, expected: u64, found: u64) -> Checked {
        equal(what, T::of(expected).bits() as i64, T::of(found).bits() as i64)
    }
}

impl<T: Width> Structure for Words<T> {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn turn(&self, actor: &mut Actor) -> Checked {
        let changes = 1 << actor.random.u8(..8);
        self.change_often(actor, changes)
    }

    fn interrupt(&self, actor: &mut Actor) -> Checked {
        self.change_often(actor, 2)
    }

    fn child(&self, actor: &mut Actor) -> Checked {
        let mut expected = self.total();
        for _ in 0..300 {
            expected = expected.wrapping_add(self.change(actor)?);
        }
        Self::check_total("a child's total of all lanes", expected, self.total())
    }

    fn account(&mut self) -> Checked {
        let add = |sum: u64, added: &AtomicU64| sum.wrapping_add(added.load(Relaxed));
        let added = self.added.iter().fold(0, add);
        Self::check_total("the total of all lanes", added, self.total())
    }
}

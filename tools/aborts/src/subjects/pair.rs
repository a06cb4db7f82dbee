//! Pairs of each width.

use std::fmt::Debug;

use thiscpu::{PairWord, PerCpuPair};

use crate::drive::Case;
use crate::lane::{Books, here, on_lane};
use crate::ops;
use crate::subject::{Conflict, Subject, WITHOUT_GATE, Wrong, expect};

pub(super) fn cases() -> Vec<Case> {
    vec![Case::of::<Pair<u32>>("PerCpuPair", "u32"), Case::of::<Pair<u64>>("PerCpuPair", "u64")]
}

trait Half: PairWord + From<u8> + Debug + Default {}

impl Half for u32 {}
impl Half for u64 {}

struct Pair<W: Half> {
    pair: PerCpuPair<W>,
    books: Books<(W, W)>,
}

impl<W: Half> Pair<W> {
    fn begin() -> (W, W) {
        (W::from(5), W::from(6))
    }

    /// What the op puts there. Both words differ, so that one which is left behind is noticed.
    fn new_value() -> (W, W) {
        (W::from(3), W::from(4))
    }

    fn meddled() -> (W, W) {
        (W::from(7), W::from(6))
    }
}

impl<W: Half> Subject for Pair<W> {
    type Answer = Result<(), (W, W)>;

    const CONFLICTS: &'static [Conflict] = WITHOUT_GATE;

    fn new() -> Self {
        let (pair, books) = (PerCpuPair::new(), Books::new());
        let lane = here();
        if ops::cmpxchg_double(&pair, <(W, W)>::default(), Self::begin()).is_ok() {
            books.at(lane, |there| *there = Self::begin());
        }
        Pair { pair, books }
    }

    fn op(&self) -> Self::Answer {
        ops::cmpxchg_double(&self.pair, Self::begin(), Self::new_value())
    }

    fn book(&self, lane: usize, _: bool) -> Self::Answer {
        self.books.at(lane, |there| match *there == Self::begin() {
            true => {
                *there = Self::new_value();
                Ok(())
            }
            false => Err(*there),
        })
    }

    /// As for words.
    fn meddle(&self) -> Result<(), Wrong> {
        on_lane(|lane| {
            let there = self.books.at(lane, |there| *there);
            let new = if there == Self::begin() { Self::meddled() } else { Self::begin() };
            let answer = ops::cmpxchg_double(&self.pair, there, new);
            self.books.at(lane, |there| *there = new);
            expect("the conflicting exchange", &answer, &Ok(()))
        })
    }

    fn check(&mut self) -> Result<(), Wrong> {
        self.books.check(self.pair.lanes())
    }
}

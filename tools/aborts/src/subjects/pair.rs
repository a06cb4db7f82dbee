//! Per-CPU pairs of each width.

use std::fmt::Debug;

use thiscpu::{PairWord, PerCpuPair};

use crate::lane::{LaneOracle, current, on_lane};
use crate::ops;
use crate::run_case::Case;
use crate::subject::{Mismatch, Subject, WITHOUT_GATE, expect};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(["PerCpuPair", "u32"], WITHOUT_GATE, Pair::<u32>::new),
        Case::new(["PerCpuPair", "u64"], WITHOUT_GATE, Pair::<u64>::new),
    ]
}

trait Half: PairWord + From<u8> + Debug + Default {}

impl Half for u32 {}
impl Half for u64 {}

struct Pair<W: Half> {
    pair: PerCpuPair<W>,
    oracle: LaneOracle<(W, W)>,
}

impl<W: Half> Pair<W> {
    fn new() -> Self {
        let (pair, oracle) = (PerCpuPair::new(), LaneOracle::new());
        let lane = current();
        if ops::cmpxchg_double(&pair, <(W, W)>::default(), Self::initial()).is_ok() {
            oracle.at(lane, |value| *value = Self::initial());
        }
        Pair { pair, oracle }
    }

    /// Returns the initial value on the lane of the operation.
    fn initial() -> (W, W) {
        (W::from(5), W::from(6))
    }

    /// Returns the operation's new value.
    ///
    /// Both words change, so a word that is left behind is noticed.
    fn new_value() -> (W, W) {
        (W::from(3), W::from(4))
    }

    fn conflicting() -> (W, W) {
        (W::from(7), W::from(6))
    }
}

impl<W: Half> Subject for Pair<W> {
    type Answer = Result<(), (W, W)>;

    fn op(&self) -> Self::Answer {
        ops::cmpxchg_double(&self.pair, Self::initial(), Self::new_value())
    }

    fn apply(&self, lane: usize, _: bool) -> Self::Answer {
        self.oracle.at(lane, |value| match *value == Self::initial() {
            true => {
                *value = Self::new_value();
                Ok(())
            }
            false => Err(*value),
        })
    }

    /// Replaces the initial value by another one, and any other value by the initial one.
    ///
    /// So a comparison fails after one conflict, and succeeds on a lane that the operation has not
    /// seen.
    fn conflict_here(&self) -> Result<(), Mismatch> {
        on_lane(|lane| {
            let found = self.oracle.at(lane, |value| *value);
            let new = if found == Self::initial() { Self::conflicting() } else { Self::initial() };
            let answer = ops::cmpxchg_double(&self.pair, found, new);
            self.oracle.at(lane, |value| *value = new);
            expect("the conflicting exchange", &answer, &Ok(()))
        })
    }

    fn check(&mut self) -> Result<(), Mismatch> {
        self.oracle.check(self.pair.lanes())
    }
}

//! The runs of one program on one allocator, and what becomes of several: ratios and means.

use super::allocator::Choice;
use super::measure::Cost;
use super::program::Program;
use crate::stats::{geometric_mean, largest, least, median};

/// The runs of one program on one allocator, a round after the other.
pub(super) struct Series {
    pub(super) program: Program,
    pub(super) allocator: Choice,
    pub(super) costs: Vec<Cost>,
}

/// What is compared of a run.
pub(super) type Value = fn(&Cost) -> f64;

impl Series {
    pub(super) fn is_of(&self, program: Program, allocator: Choice) -> bool {
        (self.program, self.allocator) == (program, allocator)
    }

    pub(super) fn values(&self, value: Value) -> Vec<f64> {
        self.costs.iter().map(value).collect()
    }

    /// What it comes to relative to `base`, in each of the rounds that both have. What a round's runs have in common, such as
    /// what else the machine does then, is not in their ratio.
    pub(super) fn ratios(&self, base: &Series, value: Value) -> Vec<f64> {
        let pairs = self.costs.iter().zip(&base.costs);
        pairs.map(|(one, base)| value(one) / value(base)).collect()
    }

    /// The ratio of the least that both came to. Whatever else a machine does makes a run longer and never shorter, so the
    /// shortest is the one that was disturbed least.
    pub(super) fn ratio_of_least(&self, base: &Series, value: Value) -> Option<f64> {
        Some(least(&self.values(value))? / least(&base.values(value))?)
    }
}

/// The mean of one value over several programs, relative to another allocator's.
pub(super) struct Mean {
    /// Of the medians over the rounds.
    pub(super) of_medians: f64,
    /// Of single rounds, the least and the largest.
    pub(super) of_rounds: [f64; 2],
    /// Of the ratios of what each program came to at least.
    pub(super) of_least: f64,
}

impl Mean {
    /// The mean over pairs of series, an allocator's and the other's with the same program; none if there is no pair, or
    /// no round that all of them have.
    pub(super) fn of(pairs: &[(&Series, &Series)], value: Value) -> Option<Mean> {
        let ratios: Vec<_> = pairs.iter().map(|(one, base)| one.ratios(base, value)).collect();
        let medians: Option<Vec<_>> = ratios.iter().map(|ratios| median(ratios)).collect();
        let in_round = |round: usize| {
            let of_all: Option<Vec<_>> =
                ratios.iter().map(|ratios| ratios.get(round).copied()).collect();
            geometric_mean(&of_all?)
        };
        let rounds = ratios.iter().map(Vec::len).min()?;
        let of_rounds: Vec<_> = (0..rounds).filter_map(in_round).collect();
        let of_least: Option<Vec<_>> =
            pairs.iter().map(|(one, base)| one.ratio_of_least(base, value)).collect();
        Some(Mean {
            of_medians: geometric_mean(&medians?)?,
            of_rounds: [least(&of_rounds)?, largest(&of_rounds)?],
            of_least: geometric_mean(&of_least?)?,
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;

    /// A series whose runs took so long, twice as much CPU time, and 100 MiB.
    pub(in super::super) fn series(program: Program, allocator: Choice, seconds: &[u64]) -> Series {
        let cost = |&seconds| Cost {
            time: Duration::from_secs(seconds),
            cpu: Duration::from_secs(2 * seconds),
            peak_bytes: 100 << 20,
        };
        Series { program, allocator, costs: seconds.iter().map(cost).collect() }
    }

    fn time(cost: &Cost) -> f64 {
        cost.time.as_secs_f64()
    }

    fn is(found: f64, wanted: f64) -> bool {
        (found - wanted).abs() < 1e-12
    }

    #[test]
    fn ratios_are_those_of_rounds() {
        let base = series(Program::Gcc, Choice::Mimalloc3, &[10, 40]);
        let half = series(Program::Gcc, Choice::Thiscpu, &[5, 20]);
        assert_eq!(half.ratios(&base, time), [0.5, 0.5]);
        // Rounds that one of them does not have are left out.
        let short = series(Program::Gcc, Choice::Thiscpu, &[20]);
        assert_eq!(short.ratios(&base, time), [2.0]);
        assert_eq!(short.ratio_of_least(&base, time), Some(2.0));
        let none = series(Program::Gcc, Choice::Thiscpu, &[]);
        assert_eq!(none.ratio_of_least(&base, time), None);
    }

    #[test]
    fn a_mean_has_a_spread_over_rounds() {
        let [gcc, xz] = [Program::Gcc, Program::Xz];
        let bases = [gcc, xz].map(|program| series(program, Choice::Mimalloc3, &[10, 10, 10]));
        let ones = [
            series(gcc, Choice::Thiscpu, &[10, 20, 40]),
            series(xz, Choice::Thiscpu, &[90, 20, 10]),
        ];
        let pairs: Vec<_> = ones.iter().zip(&bases).collect();
        let mean = Mean::of(&pairs, time).unwrap();
        assert!(is(mean.of_medians, 2.0));
        // Rounds: the roots of 1 times 9, 2 times 2 and 4 times 1.
        assert!(is(mean.of_rounds[0], 2.0) && is(mean.of_rounds[1], 3.0));
        assert!(is(mean.of_least, 1.0));
        assert!(Mean::of(&[], time).is_none());
        let none = series(gcc, Choice::Thiscpu, &[]);
        assert!(Mean::of(&[(&none, &bases[0])], time).is_none(), "nothing to take a mean of");
    }
}

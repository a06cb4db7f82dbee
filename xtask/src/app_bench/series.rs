//! The runs of one program on one allocator, and ratios and means of several.

use thiscpu_test_support::stats::{Spread, geometric_mean, median, paired_ratios};

use super::allocator::Choice;
use super::measure::Cost;
use super::program::Program;

/// The runs of one program on one allocator, in the order of rounds.
pub(super) struct Series {
    pub(super) program: Program,
    pub(super) allocator: Choice,
    pub(super) costs: Vec<Cost>,
}

/// Returns the compared value of a run.
pub(super) type Value = fn(&Cost) -> f64;

impl Series {
    pub(super) fn values(&self, value: Value) -> Vec<f64> {
        self.costs.iter().map(value).collect()
    }

    /// Returns the ratios to `base` in the rounds that both have.
    ///
    /// A disturbance of a whole round, such as other work on the machine, cancels out.
    pub(super) fn ratios(&self, base: &Series, value: Value) -> Vec<f64> {
        paired_ratios(&self.values(value), &base.values(value))
    }

    /// Returns the ratio of the smallest values.
    ///
    /// Other work on the machine never makes a run shorter, so the shortest run is the least
    /// disturbed one.
    pub(super) fn ratio_of_least(&self, base: &Series, value: Value) -> Option<f64> {
        let least = |series: &Series| Spread::of(&series.values(value)).map(|spread| spread.min);
        Some(least(self)? / least(base)?)
    }
}

/// The mean of one value over several programs, relative to another allocator's.
pub(super) struct Mean {
    /// The mean of the medians over rounds.
    pub(super) of_medians: f64,
    /// The smallest and the largest mean of a round.
    pub(super) of_rounds: Spread,
    /// The mean of the ratios of each program's smallest values.
    pub(super) of_least: f64,
}

impl Mean {
    /// Returns the mean over pairs of series, each of one program on two allocators.
    ///
    /// Returns `None` if there is no pair, or no round that all pairs have.
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
            of_rounds: Spread::of(&of_rounds)?,
            of_least: geometric_mean(&of_least?)?,
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;

    /// Returns a series whose runs took these times, twice as much CPU time, and 100 MiB.
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

    fn is_close(found: f64, expected: f64) -> bool {
        (found - expected).abs() < 1e-12
    }

    #[test]
    fn ratios_are_taken_within_rounds() {
        let base = series(Program::Gcc, Choice::Mimalloc3, &[10, 40]);
        let half = series(Program::Gcc, Choice::Thiscpu, &[5, 20]);
        assert_eq!(half.ratios(&base, time), [0.5, 0.5]);
        // Rounds that only one of them has are left out.
        let short = series(Program::Gcc, Choice::Thiscpu, &[20]);
        assert_eq!(short.ratios(&base, time), [2.0]);
        assert_eq!(short.ratio_of_least(&base, time), Some(2.0));
        let none = series(Program::Gcc, Choice::Thiscpu, &[]);
        assert_eq!(none.ratio_of_least(&base, time), None);
    }

    #[test]
    fn mean_has_a_spread_over_rounds() {
        let [gcc, xz] = [Program::Gcc, Program::Xz];
        let bases = [gcc, xz].map(|program| series(program, Choice::Mimalloc3, &[10, 10, 10]));
        let ones = [
            series(gcc, Choice::Thiscpu, &[10, 20, 40]),
            series(xz, Choice::Thiscpu, &[90, 20, 10]),
        ];
        let pairs: Vec<_> = ones.iter().zip(&bases).collect();
        let mean = Mean::of(&pairs, time).unwrap();
        assert!(is_close(mean.of_medians, 2.0));
        // Rounds: the roots of 1 times 9, 2 times 2 and 4 times 1.
        assert!(is_close(mean.of_rounds.min, 2.0) && is_close(mean.of_rounds.max, 3.0));
        assert!(is_close(mean.of_least, 1.0));
        assert!(Mean::of(&[], time).is_none());
        let none = series(gcc, Choice::Thiscpu, &[]);
        assert!(Mean::of(&[(&none, &bases[0])], time).is_none(), "nothing to take a mean of");
    }
}

//! What figures are made of: each contender's values, round by round.

use serde::Serialize;

use crate::case::Outcome;

/// What one contender came to in one respect, a round after the other. Contenders' values of a round belong together: ratios are
/// of these.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// The workload's name.
    pub workload: &'static str,
    /// Which case of the workload; empty if it has only one.
    pub case: &'static str,
    /// The contender's name.
    pub contender: &'static str,
    /// With how many threads.
    pub threads: usize,
    /// What was measured.
    pub metric: &'static str,
    /// In which unit.
    pub unit: &'static str,
    /// A round's value each, in the order of the rounds.
    pub values: Vec<f64>,
}

/// All that was measured in a case.
#[must_use]
pub fn measured(outcome: &Outcome) -> Vec<Measured> {
    let one = |series: &crate::case::Series| Measured {
        workload: outcome.kind.workload().as_str(),
        case: outcome.kind.case_name(),
        contender: series.contender.as_str(),
        threads: outcome.threads,
        metric: series.metric.name,
        unit: series.metric.unit,
        values: series.values.clone(),
    };
    outcome.series.iter().map(one).collect()
}

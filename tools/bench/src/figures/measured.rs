//! What figures are of, and what they are made of: each contender's values, round by round.

use serde::Serialize;

use crate::{case::Outcome, contenders::Name, metric::Metric};

/// What values are of.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Subject {
    /// The workload's name.
    pub(crate) workload: &'static str,
    /// Which case of the workload; empty if it has only one.
    pub(crate) case: &'static str,
    /// The contender's name.
    pub(crate) contender: &'static str,
    /// With how many threads.
    pub(crate) threads: usize,
    /// What was measured.
    pub(crate) metric: &'static str,
    /// In which unit.
    pub(crate) unit: &'static str,
}

impl Subject {
    pub(super) fn new(outcome: &Outcome, contender: Name, metric: &Metric) -> Self {
        Self {
            workload: outcome.kind.workload().as_str(),
            case: outcome.kind.case_name(),
            contender: contender.as_str(),
            threads: outcome.threads,
            metric: metric.name,
            unit: metric.unit,
        }
    }
}

/// What one contender came to in one respect, a round after the other. Contenders' values of a round belong together: ratios are
/// of these.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Measured {
    /// What the values are of.
    #[serde(flatten)]
    pub(crate) of: Subject,
    /// A round's value each, in the order of the rounds.
    pub(crate) values: Vec<f64>,
}

/// All that was measured in a case.
pub(crate) fn measured(outcome: &Outcome) -> Vec<Measured> {
    let series = outcome.series.iter();
    let one = series.map(|series| Measured {
        of: Subject::new(outcome, series.contender, series.metric),
        values: series.values.clone(),
    });
    one.collect()
}

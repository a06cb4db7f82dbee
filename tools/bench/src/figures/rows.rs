//! The lines of a report, one for each figure. `--json` prints them as they are.

use serde::Serialize;

use super::Subject;
use crate::{
    case::Outcome,
    contenders::Name,
    metric::{CACHE_RATIO, HARDENED_RATIO, MALLOC_RATIO, Metric, RATIO_TO_NONE, THISCPU_RATIO},
    stats::{self, Spread},
};

/// One figure. Its fields are the keys of a line of JSON, in this order, those of its subject first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Row {
    /// What the figure is of.
    #[serde(flatten)]
    pub(crate) of: Subject,
    /// The median over the rounds.
    pub(crate) median: f64,
    /// The smallest value of a round.
    pub(crate) min: f64,
    /// The largest value of a round.
    pub(crate) max: f64,
    /// How many rounds there were.
    pub(crate) rounds: u32,
}

impl Row {
    fn new(outcome: &Outcome, contender: Name, metric: &Metric, spread: Spread) -> Self {
        Self {
            of: Subject::new(outcome, contender, metric),
            median: spread.median,
            min: spread.min,
            max: spread.max,
            rounds: outcome.rounds,
        }
    }

    /// The figure as a line of JSON, without the line's end.
    ///
    /// # Panics
    ///
    /// Never: text and numbers can always be written as JSON.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("text and numbers can be written as JSON")
    }
}

/// All figures of an outcome, contender by contender.
pub(crate) fn rows(outcome: &Outcome) -> Vec<Row> {
    let mut rows = Vec::new();
    for &contender in &outcome.contenders {
        let own = outcome.series.iter().filter(|series| series.contender == contender);
        for series in own {
            let combined = series.metric.combine(&series.values);
            rows.extend(combined.map(|spread| Row::new(outcome, contender, series.metric, spread)));
        }
        if contender == Name::Nothing {
            continue;
        }
        let ratios = [
            (&THISCPU_RATIO, Name::ThisCpu, contender),
            (&CACHE_RATIO, Name::ThisCpuCache, contender),
            (&MALLOC_RATIO, Name::ThisCpuMalloc, contender),
            (&RATIO_TO_NONE, contender, Name::Nothing),
        ];
        for (metric, numerator, denominator) in ratios {
            let spread = ratio(outcome, numerator, denominator);
            rows.extend(spread.map(|spread| Row::new(outcome, contender, metric, spread)));
        }
        if contender == Name::ThisCpuMalloc {
            let spread = ratio(outcome, Name::ThisCpuHardened, contender);
            rows.extend(spread.map(|spread| Row::new(outcome, contender, &HARDENED_RATIO, spread)));
        }
    }
    rows
}

/// How the figures by which contenders are compared relate for two of them, if both were measured.
pub(super) fn ratio(outcome: &Outcome, numerator: Name, denominator: Name) -> Option<Spread> {
    if numerator == denominator {
        return None;
    }
    let compared = outcome.kind.compared();
    let numerators = outcome.values(numerator, compared)?;
    let denominators = outcome.values(denominator, compared)?;
    Spread::of(&stats::paired_ratios(numerators, denominators))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        case::Series,
        kind::Kind,
        metric::{TIME_PER_OP, WRONG_SUMS},
    };

    fn outcome() -> Outcome {
        let series = |contender, metric, values: &[f64]| Series {
            contender,
            metric,
            values: values.to_vec(),
        };
        Outcome {
            kind: Kind::Syscalls,
            threads: 2,
            contenders: vec![Name::Nothing, Name::Atomic, Name::ThisCpu],
            rounds: 3,
            series: vec![
                series(Name::Nothing, &TIME_PER_OP, &[10.0, 20.0, 40.0]),
                series(Name::Atomic, &TIME_PER_OP, &[40.0, 80.0, 160.0]),
                series(Name::ThisCpu, &TIME_PER_OP, &[20.0, 40.0, 80.0]),
                series(Name::ThisCpu, &WRONG_SUMS, &[1.0, 0.0, 2.0]),
            ],
            deviations: Vec::new(),
        }
    }

    fn median(rows: &[Row], contender: Name, metric: &Metric) -> Option<f64> {
        rows.iter()
            .find(|row| row.of.contender == contender.as_str() && row.of.metric == metric.name)
            .map(|row| row.median)
    }

    #[test]
    fn ratios_are_taken_round_by_round_and_never_to_oneself() {
        let rows = rows(&outcome());
        assert_eq!(median(&rows, Name::Atomic, &THISCPU_RATIO), Some(0.5));
        assert_eq!(median(&rows, Name::Atomic, &RATIO_TO_NONE), Some(4.0));
        assert_eq!(median(&rows, Name::ThisCpu, &RATIO_TO_NONE), Some(2.0));
        assert_eq!(median(&rows, Name::ThisCpu, &THISCPU_RATIO), None);
        assert_eq!(median(&rows, Name::Nothing, &THISCPU_RATIO), None);
        assert_eq!(median(&rows, Name::Nothing, &RATIO_TO_NONE), None);
        assert_eq!(median(&rows, Name::ThisCpu, &WRONG_SUMS), Some(3.0));
    }

    #[test]
    fn a_line_of_json_has_exactly_the_stated_keys() {
        let line = rows(&outcome())[0].to_json();
        let expected = concat!(
            r#"{"workload":"commit","case":"syscalls","contender":"none","threads":2,"#,
            r#""metric":"time_per_op","unit":"ns","median":20.0,"min":10.0,"max":40.0,"rounds":3}"#,
        );
        assert_eq!(line, expected);
    }
}

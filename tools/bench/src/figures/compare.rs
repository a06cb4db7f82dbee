//! `--compare`: the ratios of this run beside those of an earlier one.
//!
//! It compares only ratios of this project's time to a design of others. Both were measured in one
//! round, so a faster machine does not change their ratio.

use std::{fs::File, path::Path};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::{
    Grid, Row,
    rows::{RATIOS, read_csv},
    table::span,
};
use crate::{case, contenders::Name, plan::Plan, stats::Spread};

/// Figures of fewer rounds have no spread to speak of, so no verdict.
const ROUNDS_MIN: usize = 3;

/// The ratios of an earlier run that this one measures too.
#[derive(Debug)]
pub(crate) struct Baseline {
    rows: Vec<Row>,
    /// Rows that this version cannot compare, as it lacks their workload or contender.
    unknown: usize,
}

/// The result of a comparison.
pub(crate) struct Comparison {
    /// A table, or lines of JSON.
    pub(crate) text: String,
    /// The number of ratios that both runs have.
    pub(crate) compared: usize,
    pub(crate) has_regressed: bool,
    /// A notice of what could not be compared.
    pub(crate) left_out: Option<String>,
}

struct Change<'a> {
    row: &'a Row,
    old: Spread,
    new: Spread,
    /// The rounds of the run that has fewer.
    rounds: usize,
    is_partial: bool,
}

impl Change<'_> {
    fn ratio(&self) -> Spread {
        self.new.divided_by(self.old)
    }

    /// Judges: past the spread, the best new round is worse than the worst old, or the reverse.
    fn verdict(&self) -> &'static str {
        match self.ratio() {
            _ if self.is_partial => "partial",
            _ if self.rounds < ROUNDS_MIN => "too few rounds",
            Spread { min, .. } if min > 1.0 => "regression",
            Spread { max, .. } if max < 1.0 => "improvement",
            _ => "within the spread",
        }
    }
}

impl Baseline {
    /// Reads a results.csv, which must have a ratio that `plan` measures, and each only once.
    pub(crate) fn load(path: &Path, plan: &Plan) -> Result<Self> {
        let shown = path.display();
        let file = File::open(path).with_context(|| format!("cannot open {shown}"))?;
        let (mut rows, unknown) = read_csv(file).with_context(|| format!("cannot read {shown}"))?;
        let is_planned = |row: &Row| {
            plan.cases.iter().any(|case| {
                let measures = |name| case.contenders.contains(&name);
                row.is_of(case.kind, case.threads)
                    && ours(row).is_some_and(measures)
                    && measures(row.contender)
            })
        };
        rows.retain(is_planned);
        ensure!(
            !rows.is_empty(),
            "{shown} has no ratio of the cases and contenders that would run"
        );
        for (index, row) in rows.iter().enumerate() {
            let is_again = rows[..index].iter().any(|earlier| earlier.is_same_figure(row));
            ensure!(!is_again, "{shown} has a ratio twice: {}", row.to_json());
        }
        Ok(Self { rows, unknown })
    }

    fn changes<'a>(&self, rows: &'a [Row]) -> Vec<Change<'a>> {
        let change = |row: &'a Row| {
            let old = self.rows.iter().find(|old| old.is_same_figure(row))?;
            Some(Change {
                row,
                old: old.spread(),
                new: row.spread(),
                rounds: row.rounds.min(old.rounds),
                is_partial: row.partial || old.partial,
            })
        };
        rows.iter().filter(|row| ours(row).is_some()).filter_map(change).collect()
    }

    /// Compares the rows of this run, as text or as lines of JSON.
    pub(crate) fn compare(&self, rows: &[Row], json: bool) -> Comparison {
        let changes = self.changes(rows);
        let compared = changes.len();
        let only_new = rows.iter().filter(|row| ours(row).is_some()).count() - compared;
        let only_old = self.rows.len() - compared;
        let left_out = (only_new + only_old + self.unknown > 0).then(|| {
            format!(
                "not compared: {only_new} ratios that the earlier run lacks, {only_old} that this \
                 run lacks, {} rows of unknown workloads or contenders",
                self.unknown
            )
        });
        let count = |verdict| changes.iter().filter(|it| it.verdict() == verdict).count();
        let regressions = count("regression");
        let text = if json {
            let lines: Vec<_> = changes.iter().map(|it| to_json(it).to_string()).collect();
            lines.join("\n")
        } else {
            format!(
                "\n{}\n\n{compared} ratios compared: {regressions} worse past the spread, {} \
                 better, {} without a verdict",
                grid(&changes),
                count("improvement"),
                count("too few rounds") + count("partial"),
            )
        };
        Comparison { text, compared, has_regressed: regressions > 0, left_out }
    }
}

/// Returns the design of this project that a row compares with a design of others.
///
/// A ratio to another design of this project grows when that one gets faster, which is no
/// regression.
fn ours(row: &Row) -> Option<Name> {
    let ratio = RATIOS.iter().find(|(metric, _)| metric.name == row.metric)?;
    row.contender.is_rival().then_some(ratio.1)
}

fn grid(changes: &[Change<'_>]) -> Grid {
    let header = ["case", "contender", "ratio", "old", "new", "new / old", "verdict"];
    let cells = |change: &Change<'_>| {
        let row = change.row;
        let title = row.kind().map(|kind| case::title(kind, row.threads));
        vec![
            title.unwrap_or_default(),
            row.contender.to_string(),
            row.metric.clone(),
            span(change.old, "ratio"),
            span(change.new, "ratio"),
            span(change.ratio(), "ratio"),
            change.verdict().to_owned(),
        ]
    };
    Grid {
        title: "Ratios beside those of the earlier run; above 1 is slower than it".to_owned(),
        header: header.map(str::to_owned).to_vec(),
        rows: changes.iter().map(cells).collect(),
        names: 3,
    }
}

fn to_json(change: &Change<'_>) -> serde_json::Value {
    let Row { workload, case, contender, threads, metric, .. } = change.row;
    let spread =
        |spread: Spread| json!({ "median": spread.median, "min": spread.min, "max": spread.max });
    json!({
        "compared": metric,
        "workload": workload,
        "case": case,
        "contender": contender,
        "threads": threads,
        "old": spread(change.old),
        "new": spread(change.new),
        "new_to_old": spread(change.ratio()),
        "partial": change.is_partial,
        "verdict": change.verdict(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::{CACHE_RATIO, HARDENED_RATIO, THISCPU_RATIO};

    #[test]
    fn only_ratios_to_designs_of_others_are_compared() {
        let case = (crate::kind::Kind::Syscalls, 2);
        for (metric, contender, compared) in [
            (&THISCPU_RATIO, Name::Atomic, Some(Name::ThisCpu)),
            (&CACHE_RATIO, Name::Glibc, Some(Name::ThisCpuCache)),
            (&CACHE_RATIO, Name::ThisCpuMalloc, None),
            (&HARDENED_RATIO, Name::ThisCpuMalloc, None),
            (&THISCPU_RATIO, Name::Section, None),
        ] {
            let row = Row::new(case, contender, metric, vec![1.0]).unwrap();
            assert_eq!(ours(&row), compared, "{contender}: {}", metric.name);
        }
    }
}

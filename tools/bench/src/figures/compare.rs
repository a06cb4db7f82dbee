//! `--compare`: the ratios of this run beside those of an earlier one.
//!
//! It compares only ratios of this project's time to another contender's. Both were measured in one
//! round, so a faster machine does not change their ratio.

use std::{fs::File, path::Path};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::{Grid, Row, read_csv, table::span};
use crate::{
    case,
    metric::{CACHE_RATIO, HARDENED_RATIO, MALLOC_RATIO, THISCPU_RATIO},
    plan::Plan,
    stats::Spread,
};

/// Figures of fewer rounds have no spread to speak of, so no verdict.
const ROUNDS_MIN: usize = 3;

#[derive(Debug)]
pub(crate) struct Baseline(Vec<Row>);

struct Change<'a> {
    row: &'a Row,
    old: Spread,
    new: Spread,
    /// Whether both have enough rounds for a verdict.
    has_verdict: bool,
}

impl Change<'_> {
    fn ratio(&self) -> Spread {
        self.new.divided_by(self.old)
    }

    /// Judges: past the spread, the best new round is worse than the worst old, or the reverse.
    fn verdict(&self) -> &'static str {
        match self.ratio() {
            _ if !self.has_verdict => "too few rounds",
            Spread { min, .. } if min > 1.0 => "regression",
            Spread { max, .. } if max < 1.0 => "improvement",
            _ => "within the spread",
        }
    }
}

impl Baseline {
    /// Reads a results.csv, which must have a ratio of a case of `plan`.
    pub(crate) fn load(path: &Path, plan: &Plan) -> Result<Self> {
        let shown = path.display();
        let file = File::open(path).with_context(|| format!("cannot open {shown}"))?;
        let mut rows = read_csv(file).with_context(|| format!("cannot read {shown}"))?;
        let is_planned =
            |row: &Row| plan.cases.iter().any(|case| row.is_of(case.kind, case.threads));
        rows.retain(|row| is_ratio(row) && is_planned(row));
        ensure!(!rows.is_empty(), "{shown} has no ratio of the cases that would run");
        Ok(Self(rows))
    }

    fn changes<'a>(&self, rows: &'a [Row]) -> Vec<Change<'a>> {
        let change = |row: &'a Row| {
            let old = self.0.iter().find(|old| old.is_same_figure(row))?;
            let has_verdict = row.rounds.min(old.rounds) >= ROUNDS_MIN;
            Some(Change { row, old: old.spread(), new: row.spread(), has_verdict })
        };
        rows.iter().filter(|row| is_ratio(row)).filter_map(change).collect()
    }

    /// Returns the comparison as text, or as lines of JSON, and whether there is a regression.
    pub(crate) fn compare(&self, rows: &[Row], json: bool) -> (String, bool) {
        let changes = self.changes(rows);
        let count = |verdict| changes.iter().filter(|it| it.verdict() == verdict).count();
        let regressions = count("regression");
        if json {
            let lines: Vec<_> = changes.iter().map(|it| to_json(it).to_string()).collect();
            return (lines.join("\n"), regressions > 0);
        }
        let text = format!(
            "{}\n\n{} ratios compared: {regressions} worse past the spread, {} better, {} without \
             a verdict",
            grid(&changes),
            changes.len(),
            count("improvement"),
            count("too few rounds"),
        );
        (text, regressions > 0)
    }
}

fn is_ratio(row: &Row) -> bool {
    [&THISCPU_RATIO, &CACHE_RATIO, &MALLOC_RATIO, &HARDENED_RATIO]
        .iter()
        .any(|metric| metric.name == row.metric)
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
        "verdict": change.verdict(),
    })
}

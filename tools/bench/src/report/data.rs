//! The figures for programs: `results.json`, `results.csv`, `rounds.csv` and `deviations.csv`. docs/benchmarks.md says what is in them.

use crate::{
    case::Outcome,
    figures::{self, Measured, Row},
};
use anyhow::Result;
use serde::Serialize;

use crate::report::run::Run;

/// What `results.json` calls itself. Another number is for files that who reads this one would misread.
pub(crate) const FORMAT: &str = "thiscpu-bench-report-1";

#[derive(Serialize)]
struct Results<'a> {
    format: &'static str,
    /// Whether all cases of the run are there.
    is_complete: bool,
    cases_done: usize,
    run: &'a Run,
    rows: Vec<Row>,
    /// What the rows are made of.
    measured: Vec<Measured>,
    deviations: Vec<Deviation>,
    /// The names of the pictures beside it.
    plots: &'a [String],
}

/// The columns that say what a value is of.
const SUBJECT: [&str; 6] = ["workload", "case", "contender", "threads", "metric", "unit"];

/// Sums of one contender that were as far from what can be true.
#[derive(Debug, PartialEq, Serialize)]
struct Deviation {
    workload: &'static str,
    case: &'static str,
    contender: &'static str,
    threads: usize,
    from: i64,
    to: i64,
    sums: u64,
}

/// Everything, as one object.
pub(crate) fn as_json(run: &Run, outcomes: &[Outcome], plots: &[String]) -> Result<Vec<u8>> {
    let results = Results {
        format: FORMAT,
        is_complete: outcomes.len() == run.cases,
        cases_done: outcomes.len(),
        run,
        rows: outcomes.iter().flat_map(figures::rows).collect(),
        measured: outcomes.iter().flat_map(figures::measured).collect(),
        deviations: deviations(outcomes),
        plots,
    };
    let mut text = serde_json::to_vec_pretty(&results)?;
    text.push(b'\n');
    Ok(text)
}

/// A line for each figure, after one with the names of the columns.
pub(crate) fn figures_as_csv(outcomes: &[Outcome]) -> Result<Vec<u8>> {
    let rows = outcomes.iter().flat_map(figures::rows);
    let columns = ["median", "min", "max", "rounds"];
    as_csv(&columns, rows.map(|row| (row.of, row.median, row.min, row.max, row.rounds)))
}

/// A line for each value of each round, counted from 1, after one with the names of the columns.
pub(crate) fn rounds_as_csv(outcomes: &[Outcome]) -> Result<Vec<u8>> {
    let rounds = outcomes.iter().flat_map(figures::measured).flat_map(|it| {
        let values = it.values.into_iter().zip(1_usize..);
        values.map(move |(value, round)| (it.of.clone(), round, value))
    });
    as_csv(&["round", "value"], rounds)
}

/// Lines that begin with a subject, which can't be told its columns' names by itself beside others.
fn as_csv(columns: &[&str], rows: impl Iterator<Item = impl Serialize>) -> Result<Vec<u8>> {
    let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
    writer.write_record(SUBJECT.iter().chain(columns))?;
    for row in rows {
        writer.serialize(row)?;
    }
    Ok(writer.into_inner()?)
}

/// A line for each class of distances, after one with the names of the columns; empty if no sums were looked at.
pub(crate) fn deviations_as_csv(outcomes: &[Outcome]) -> Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for deviation in deviations(outcomes) {
        writer.serialize(deviation)?;
    }
    Ok(writer.into_inner()?)
}

fn deviations(outcomes: &[Outcome]) -> Vec<Deviation> {
    let mut all = Vec::new();
    for outcome in outcomes {
        for (contender, deviations) in outcome.deviations() {
            all.extend(deviations.classes().map(|class| Deviation {
                workload: outcome.workload().as_str(),
                case: outcome.case(),
                contender: contender.as_str(),
                threads: outcome.threads(),
                from: class.from,
                to: class.to,
                sums: class.sums,
            }));
        }
    }
    all
}

//! The report of a run: a page with plots, and its figures as files.
//!
//! A directory that holds one has `index.html`, which needs no other file (plots, tables, the
//! machine, and how to repeat the run); each plot as a file (`*.svg`); `results.csv`; and
//! `results.json`, which is [`Report`] itself.
//!
//! It is written again after each case, so that it has what was measured if a later case fails. The
//! layers, each of which uses only those before it: `directory` (files), `run` (facts of the run),
//! `series` (figures by case, contender and threads), `plot` (SVG), `page` (HTML).

mod directory;
mod page;
mod plot;
mod run;
mod series;

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use thiscpu_test_support::tool::output::note;

pub(crate) use self::directory::Directory;
use self::{plot::Picture, run::Run};
use crate::{
    case::Outcome,
    contenders::Name,
    deviations::Class,
    figures::{Row, to_csv},
    plan::Plan,
    workloads::Workload,
};

/// The value of `format` in results.json. A change that old files lack changes the number.
const FORMAT: &str = "thiscpu-bench-report-2";

const RESULTS: &str = "results.json";

/// All that is known of a run so far; the content of results.json.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    format: String,
    /// Whether all cases of the run are there, with all their rounds.
    is_complete: bool,
    pub(crate) cases_done: usize,
    run: Run,
    pub(crate) rows: Vec<Row>,
    deviations: Vec<Deviation>,
}

/// How many of one contender's sums were off by that much.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Deviation {
    workload: Workload,
    case: String,
    contender: Name,
    threads: usize,
    #[serde(flatten)]
    class: Class,
}

impl Report {
    /// Begins the report of `plan`, which can be repeated by the program's `arguments`.
    pub(crate) fn new(plan: &Plan, arguments: impl IntoIterator<Item = String>) -> Result<Self> {
        Ok(Self {
            format: FORMAT.to_owned(),
            is_complete: false,
            cases_done: 0,
            run: Run::new(plan, arguments)?,
            rows: Vec::new(),
            deviations: Vec::new(),
        })
    }

    /// Adds a case that was measured, with its figures.
    pub(crate) fn add(&mut self, outcome: &Outcome, rows: &[Row]) {
        self.rows.extend_from_slice(rows);
        self.cases_done += usize::from(outcome.is_complete);
        self.is_complete = self.cases_done == self.run.cases;
        for (contender, deviations) in &outcome.deviations {
            self.deviations.extend(deviations.classes().map(|class| Deviation {
                workload: outcome.kind.workload(),
                case: outcome.kind.case_name().to_owned(),
                contender: *contender,
                threads: outcome.threads,
                class,
            }));
        }
    }

    /// Returns the tier that the library runs on.
    pub(crate) fn tier(&self) -> &str {
        &self.run.machine.tier
    }

    /// Writes all files, each whole or not at all, and removes plots of an earlier report.
    pub(crate) fn write(&self, directory: &Directory) -> Result<()> {
        let cases = series::cases(&self.rows, &self.deviations);
        let pictures = plot::pictures(&cases)?;
        let file = |it: &Picture| (format!("{}.svg", it.slug), it.to_file().into_bytes());
        let mut files: Vec<(String, Vec<u8>)> = pictures.iter().map(file).collect();
        files.push(("results.csv".to_owned(), to_csv(&self.rows)?));
        files.push((RESULTS.to_owned(), serde_json::to_vec(self)?));
        files.push((directory::PAGE.to_owned(), page::page(self, &cases, &pictures).into_bytes()));
        directory.replace(&files)
    }

    fn read(directory: &Path) -> Result<Self> {
        let path = directory.join(RESULTS);
        let failed = || format!("cannot read {}", path.display());
        let report: Self = serde_json::from_slice(&std::fs::read(&path).with_context(failed)?)
            .with_context(failed)?;
        let format = &report.format;
        ensure!(format == FORMAT, "{} has the format {format}, not {FORMAT}", path.display());
        Ok(report)
    }
}

/// Runs `thiscpu-bench report DIR`: draws the report in a directory again.
pub(crate) fn redraw(path: &Path) -> Result<()> {
    let report = Report::read(path)?;
    let directory = Directory::prepare(path)?;
    report.write(&directory)?;
    note(&format!("the report is in {}", directory.page().display()));
    Ok(())
}

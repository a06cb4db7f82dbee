//! `thiscpu-bench bench`: runs the requested cases and prints their figures.

use std::{process::ExitCode, time::Instant};

use anyhow::{Error, Result, ensure};
use serde_json::json;
use thiscpu_test_support::tool::{
    output::{FAILED, REFUSED, complain, note, print_line},
    stop,
};

use crate::{
    args::Args,
    case::{self, Outcome},
    figures::{self, Baseline, Row},
    kind::Kind,
    plan::Plan,
    progress::Progress,
    report::{Directory, Report},
    workloads::Workload,
};

/// Exit status if a ratio is worse past its spread.
const REGRESSED: u8 = 4;

pub(crate) fn main(args: &Args) -> ExitCode {
    match prepare(args) {
        Ok(Some(run)) => run.run().unwrap_or_else(|why| complain(&format!("{why:#}"), FAILED)),
        Ok(None) => ExitCode::SUCCESS,
        Err((why, status)) => complain(&format!("{why:#}"), status),
    }
}

/// Checks the request before anything is measured. Returns no run if it asks for a list.
fn prepare(args: &Args) -> Result<Option<Run>, (Error, u8)> {
    let refuse = |why: String| (Error::msg(why), REFUSED);
    thiscpu::tier().map_err(|why| refuse(why.to_string()))?;
    if args.list {
        // Also the cases that run only if their workload is named.
        let mut options = args.options.clone();
        if options.workloads.is_empty() && options.contenders.is_empty() {
            options.workloads = Workload::ALL.to_vec();
        }
        let plan = Plan::new(&options).map_err(refuse)?;
        print_line(&figures::list(&plan)).map_err(|why| (Error::msg(why), FAILED))?;
        return Ok(None);
    }
    let plan = Plan::new(&args.options).map_err(refuse)?;
    let refuse = |why: Error| (why, REFUSED);
    let load = |path| Baseline::load(path, &plan);
    let baseline = args.compare.as_deref().map(load).transpose().map_err(refuse)?;
    let directory = args.report.as_deref().map(Directory::prepare).transpose().map_err(refuse)?;
    // For people to read and repeat.
    let arguments = std::env::args_os().skip(1).map(|it| it.to_string_lossy().into_owned());
    let report = Report::new(&plan, arguments).map_err(refuse)?;
    stop::listen();
    Ok(Some(Run { plan, json: args.json, report, directory, baseline }))
}

/// A run that was found to be possible.
struct Run {
    plan: Plan,
    json: bool,
    report: Report,
    directory: Option<Directory>,
    baseline: Option<Baseline>,
}

impl Run {
    /// Runs the cases, prints each when it is done, and then figures of several cases.
    ///
    /// It writes the page, if one is wanted, after each case.
    fn run(mut self) -> Result<ExitCode> {
        let progress = self.plan.progress();
        let began = Instant::now();
        let mut is_read = true;
        if self.json {
            self.plan.unavailable.iter().for_each(|why| note(why));
        } else {
            is_read = self.print(&figures::heading(&self.plan, self.report.tier()), &progress)?;
        }
        let mut steps = 0;
        let all = self.plan.all_cases().len();
        for (index, case) in self.plan.all_cases().enumerate() {
            if !is_read && self.directory.is_none() {
                return Ok(ExitCode::SUCCESS);
            }
            let cases_left = (all - index) as u32;
            let share =
                |time: std::time::Duration| time.saturating_sub(began.elapsed()) / cases_left;
            let outcome = case.run(&progress, self.plan.time.map(share))?;
            steps += case.steps();
            progress.skip_to(steps);
            let rows = figures::rows(&outcome);
            self.report.add(&outcome, &rows);
            if let Some(directory) = &self.directory {
                self.report.write(directory)?;
            }
            // The cells of a walk are in one table at the end.
            let is_in_table = !self.json && matches!(case.kind, Kind::Walk(_));
            if is_read && !rows.is_empty() && !is_in_table {
                is_read = self.print(&self.text_of(&outcome, &rows), &progress)?;
            }
            if stop::is_requested() {
                break;
            }
        }
        self.finish(is_read, &progress)
    }

    /// Prints what several cases come to, and returns the exit status.
    fn finish(self, mut is_read: bool, progress: &Progress) -> Result<ExitCode> {
        let rows = &self.report.rows;
        let (done, all) = (self.report.cases_done, self.plan.all_cases().len());
        let is_partial = stop::is_requested() && done < all;
        let mut texts = Vec::new();
        if !self.json {
            let mark = if is_partial { "Partial: " } else { "" };
            let grids = figures::summary(rows).into_iter().chain(figures::walk(rows));
            texts.extend(grids.map(|grid| format!("\n{mark}{grid}")));
            texts.extend(figures::headline(rows).map(|line| format!("\n{mark}{line}")));
        }
        if is_partial && self.json {
            texts.push(json!({ "partial": true, "cases_done": done, "cases": all }).to_string());
        }
        let comparison = self.baseline.as_ref().map(|it| it.compare(rows, self.json));
        texts.extend(comparison.iter().map(|it| it.text.clone()));
        for text in texts.iter().filter(|text| !text.is_empty()) {
            is_read = is_read && self.print(text, progress)?;
        }
        if let Some(text) = comparison.iter().find_map(|it| it.left_out.as_ref()) {
            progress.aside(|| note(text));
        }
        if let Some(directory) = &self.directory {
            progress.aside(|| note(&format!("the report is in {}", directory.page().display())));
        }
        if is_partial {
            let text =
                format!("interrupted after {done} of {all} cases: these figures are partial");
            progress.aside(|| note(&text));
            // As a shell reports a program that the signal has ended.
            return Ok(ExitCode::from(128 + stop::signal() as u8));
        }
        ensure!(comparison.iter().all(|it| it.compared > 0), "no ratio could be compared");
        let has_regressed = comparison.is_some_and(|it| it.has_regressed);
        Ok(if has_regressed { ExitCode::from(REGRESSED) } else { ExitCode::SUCCESS })
    }

    fn text_of(&self, outcome: &Outcome, rows: &[Row]) -> String {
        if self.json {
            let lines: Vec<String> = rows.iter().map(Row::to_json).collect();
            return lines.join("\n");
        }
        let partial = if outcome.is_complete { "" } else { " (partial)" };
        let title = case::title(outcome.kind, outcome.threads);
        format!("\n{}", figures::table(format!("{title}{partial}"), rows))
    }

    /// Prints without the bar, and returns whether there still is a reader.
    fn print(&self, text: &str, progress: &Progress) -> Result<bool> {
        progress.aside(|| print_line(text)).map_err(Error::msg)
    }
}

//! Runs the cases that were asked for, and prints what comes of them.

use std::process::ExitCode;

use anyhow::Result;

use crate::{
    args::Args,
    case::{Case, Outcome},
    figures,
    output::{REFUSED, complain, end, is_closed_pipe, print_line, warn},
    plan::Plan,
    progress::Progress,
    report::Report,
};

/// Runs the subcommand.
pub(crate) fn main(args: &Args) -> ExitCode {
    let tier = match thiscpu::tier() {
        Ok(tier) => tier,
        Err(why) => return complain(&why, REFUSED),
    };
    let plan = match Plan::new(&args.options()) {
        Ok(plan) => plan,
        Err(why) => return complain(&why, REFUSED),
    };
    // Before anything is measured, which takes minutes.
    let page = args.report.as_deref().map(|dir| Report::prepare(dir, &plan, arguments()));
    match page.transpose() {
        Ok(page) => end(run(&plan, args.json, &tier.to_string(), page)),
        Err(why) => complain(&format!("{why:#}"), REFUSED),
    }
}

/// What the program was called with, for people to read and repeat.
fn arguments() -> impl Iterator<Item = String> {
    std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned())
}

/// Runs the cases one after the other, and prints each as soon as it is done; then what some of them come to. The page, if one is
/// wanted, is written after each case: what was measured is there if a later one fails.
fn run(plan: &Plan, json: bool, tier: &str, mut page: Option<Report>) -> Result<()> {
    let has_page = page.is_some();
    let mut is_read = true;
    if json {
        plan.unavailable.iter().for_each(|why| warn(why));
    } else {
        is_read = goes_on(print_line(&figures::heading(plan, tier)), has_page)?;
    }
    let progress = Progress::new(plan);
    let mut outcomes = Vec::new();
    for case in &plan.cases {
        outcomes.push(measure(case, &progress)?);
        if let Some(page) = &mut page {
            page.write(&outcomes)?;
        }
        if let Some(outcome) = outcomes.last().filter(|_| is_read) {
            is_read = goes_on(progress.aside(|| print_outcome(outcome, json)), has_page)?;
        }
    }
    if !json && is_read {
        for grid in figures::summary(&outcomes) {
            progress.aside(|| print_line(&format!("\n{grid}")))?;
        }
    }
    if let Some(page) = page {
        progress.aside(|| warn(&format!("the report is in {}", page.page().display())));
    }
    Ok(())
}

/// Whether there is somebody to print to. Without a page that is the end.
fn goes_on(printed: Result<()>, has_page: bool) -> Result<bool> {
    match printed {
        Err(error) if has_page && is_closed_pipe(&error) => Ok(false),
        other => other.map(|()| true),
    }
}

fn measure(case: &Case, progress: &Progress) -> Result<Outcome> {
    case.run(|contender, round| {
        progress.begin(format!("{}: {contender}, round {}", case.title(), round + 1));
    })
}

fn print_outcome(outcome: &Outcome, json: bool) -> Result<()> {
    if json {
        let rows = figures::rows(outcome);
        let lines: Vec<String> = rows.iter().map(figures::Row::to_json).collect();
        print_line(&lines.join("\n"))
    } else {
        print_line(&format!("\n{}", figures::table(outcome)))
    }
}

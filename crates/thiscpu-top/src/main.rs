//! `thiscpu-top`: shows what running programs do with a segment.
//!
//! It only reads the segment, so it takes no slot, seals no lane, and delays nobody.

// `println!` and `eprintln!` panic when they cannot write.
#![warn(clippy::print_stderr, clippy::print_stdout)]

mod cells;
mod health;
mod numbers;
mod order;
mod report;
mod sample;
mod screen;
mod session;
mod terminal;
mod ui;
mod watch;

use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{CommandFactory as _, Parser};
use thiscpu_program::{manual, output, source};

use order::{Choice, SortKey};
use output::{FAILED, REFUSED};
use report::Form;
use session::Session;
use source::Ambiguous;

const NAME: &str = "thiscpu-top";
const DETAILS: &str = "\
A number with ~ was changing, or is of a budget with free units that are lent to CPUs. A value ? has
no bounds. The program only reads the segment, and delays nobody.

JSON has all counters and then all budgets by name. A budget's held and free add up to limit, as in
the tables; pool is the part of free that is lent to no CPU.

Colors are off if NO_COLOR is set. Without cursor control (TERM=dumb), tables are printed in turn.

Exit status: 0 done; 1 the segment is missing or damaged, or nothing can be written; 2 wrong
arguments, or several segments fit them.";

/// Show counters, budgets and processes of a segment that running programs use
#[derive(Debug, Parser)]
#[command(name = NAME, version, after_long_help = DETAILS)]
struct Cli {
    /// The segment: a path, a name in /dev/shm, or the ID of a process that uses it
    ///
    /// May be left out if /dev/shm has one segment. A number is a process ID; ./7 is a file.
    #[arg(value_name = "SEGMENT|PID")]
    target: Option<OsString>,
    /// Print one look, and end
    #[arg(long, conflicts_with = "count")]
    once: bool,
    /// Print this number of looks, and end
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Print looks as JSON, one object in a line, until --count or the reader ends it
    #[arg(long)]
    json: bool,
    /// The time between two looks; with --once, 0 prints at once, without rates
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,
    /// Show only names that contain this, in any case
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    filter: String,
    /// The order of rows
    #[arg(long, value_name = "KEY", default_value = "rate", conflicts_with = "json")]
    sort: SortKey,
    /// Reverse the order of rows
    #[arg(long, conflicts_with = "json")]
    reverse: bool,
    /// Print this number of counters and of budgets at most
    #[arg(long, value_name = "N", conflicts_with = "json")]
    rows: Option<usize>,
    /// Print completions for a shell
    #[arg(long, value_name = "SHELL", exclusive = true)]
    completions: Option<clap_complete::Shell>,
    /// Write the man page into a directory, which must exist
    #[arg(long, value_name = "DIRECTORY", exclusive = true, hide = true)]
    man: Option<PathBuf>,
}

/// The longest interval in seconds, a day.
const INTERVAL_MAX_S: f64 = 86_400.0;

fn interval(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds @ (0.0 | 0.1..=INTERVAL_MAX_S)) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("use 0, or 0.1 to 86400 seconds".to_owned()),
    }
}

/// Returns whether the terminal can move its cursor, as far as the environment tells.
fn has_cursor() -> bool {
    std::env::var_os("TERM").is_some_and(|name| !name.is_empty() && name != "dumb")
}

/// Returns how many rows three tables can have on the terminal, with their labels.
fn rows_of_terminal() -> usize {
    let size = ratatui::crossterm::terminal::size();
    let height = size.ok().map(|(_, height)| height).filter(|&height| height > 0).unwrap_or(24);
    usize::from(height).saturating_sub(8).max(3) / 3
}

fn main() -> ExitCode {
    let cli =
        Cli::try_parse().unwrap_or_else(|error| std::process::exit(output::answer(NAME, &error)));
    execute(cli).unwrap_or_else(|error| {
        output::note(NAME, &format!("{error:#}"));
        ExitCode::from(if error.is::<Ambiguous>() { REFUSED } else { FAILED })
    })
}

fn execute(cli: Cli) -> Result<ExitCode> {
    if let Some(shell) = cli.completions {
        manual::completions(NAME, &Cli::command(), shell)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(directory) = &cli.man {
        manual::pages(Cli::command(), directory)?;
        return Ok(ExitCode::SUCCESS);
    }
    if cli.interval.is_zero() && !cli.once {
        output::note(NAME, "without --once, --interval 0 has no end; use 0.1 or more");
        return Ok(ExitCode::from(REFUSED));
    }
    let choice = Choice { filter: cli.filter, sort: cli.sort, is_reversed: cli.reverse };
    let count = if cli.once { Some(1) } else { cli.count };
    let is_printed = count.is_some() || cli.json;
    if !is_printed && !io::stdout().is_terminal() {
        output::note(NAME, "standard output is no terminal; use --once, --count or --json");
        return Ok(ExitCode::from(REFUSED));
    }
    let mut session = Session::open(cli.target.as_deref(), cli.interval, choice)?;
    if !is_printed && has_cursor() {
        return watch::run(&mut session, cli.interval).map(|()| ExitCode::SUCCESS);
    }
    let form = match cli.json {
        true => Form::Json,
        false if is_printed => Form::Text(cli.rows.unwrap_or(usize::MAX)),
        false => Form::Text(cli.rows.unwrap_or_else(rows_of_terminal)),
    };
    let is_bad = report::print(&mut session, form, count, cli.interval)?;
    Ok(if is_bad { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}

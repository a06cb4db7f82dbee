//! `thiscpu-export`: serves what segments hold to Prometheus, from outside the programs that use
//! them.
//!
//! By default it only reads segments, so it takes no slot, seals no lane, and delays nobody.

// `println!` and `eprintln!` panic when they cannot write.
#![warn(clippy::print_stderr, clippy::print_stdout)]

mod look;
mod own;
mod page;
mod series;
mod service;
mod target;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory as _, Parser};
use thiscpu_metrics::Format;
use thiscpu_program::source::Ambiguous;
use thiscpu_program::{manual, output};

use output::{FAILED, REFUSED};
use service::{NAME, Segments};

const DETAILS: &str = "\
GET /metrics answers in the text format of Prometheus, or in OpenMetrics if the client prefers it.
It has all series of the segments' registries, and health, counters and budgets in families whose
names begin with thiscpu_. Each sample has the label segment.

A segment that could not be read has thiscpu_segment_up 0, and is looked for at each scrape. A
segment that replaces another one is read from then on. An answer takes 5 seconds for counters and
budgets of all segments; what is not read in that time is missing.

Without --exact the program only reads. A value that changes meanwhile is the middle of its bounds;
thiscpu_segment_values says how many values are exact.

Whoever may create a segment's name in /dev/shm can serve any values under it. Against that, give a
path in a directory that only the service can write.

Exit status: 0 done, or ended by SIGTERM or Ctrl-C; 1 a process has ended or has no segment,
/dev/shm has none, a segment could not be read (--once), the address cannot be used, or nothing can
be written; 2 wrong arguments, or several segments fit.";

/// Serve what segments of running programs hold to Prometheus
#[derive(Debug, Parser)]
#[command(name = NAME, version, after_long_help = DETAILS)]
struct Cli {
    /// The segments: paths, names in /dev/shm, or IDs of processes that use one
    ///
    /// May be left out if /dev/shm has one segment. A number is a process ID; ./7 is a file.
    #[arg(value_name = "SEGMENT|PID")]
    targets: Vec<OsString>,
    /// The address and port that Prometheus scrapes; port 0 takes a free one
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:19187",
        conflicts_with = "once"
    )]
    listen: String,
    /// Print one answer, and end
    #[arg(long)]
    once: bool,
    /// The format of --once
    #[arg(long, value_name = "FORMAT", default_value = "prometheus", requires = "once")]
    format: Form,
    /// Attach, and seal lanes for exact values of one instant; needs to write to the segments
    ///
    /// If other sums overtake a look a hundred times, its values have bounds.
    #[arg(long)]
    exact: bool,
    /// Print completions for a shell
    #[arg(long, value_name = "SHELL", exclusive = true)]
    completions: Option<clap_complete::Shell>,
    /// Write the man page into a directory, which must exist
    #[arg(long, value_name = "DIRECTORY", exclusive = true, hide = true)]
    man: Option<PathBuf>,
}

/// A format of `--once`.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Form {
    /// The text format of Prometheus, version 0.0.4
    Prometheus,
    /// OpenMetrics 1.0
    Openmetrics,
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
    let mut segments = Segments::find(&cli.targets, cli.exact)?;
    if segments.is_one_unnamed() {
        output::note(NAME, "the name of a segment is empty; give a name, a path or a process ID");
        return Ok(ExitCode::from(REFUSED));
    }
    if let Some(label) = segments.doubled() {
        output::note(NAME, &format!("two segments have the name {label}; give each one once"));
        return Ok(ExitCode::from(REFUSED));
    }
    if !cli.once {
        service::run(segments, &cli.listen)?;
        return Ok(ExitCode::SUCCESS);
    }
    let format = match cli.format {
        Form::Prometheus => Format::Text,
        Form::Openmetrics => Format::OpenMetrics,
    };
    output::print(&segments.answer(&[format]).concat())?;
    Ok(if segments.are_up() { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

//! `thiscpu`: shows what per-CPU data does for programs on this machine.
//!
//! `thiscpu bench` measures the known designs of counters, limits, accounts and allocators side by side; without a
//! subcommand the program does that too, with everything at its default.

mod bench;
mod doctor;
mod run;
mod self_test;
mod torture;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Exit status of a run that failed.
const FAILED: u8 = 1;
/// Exit status when nothing was run, because what was asked for does not exist; clap's too.
const REFUSED: u8 = 2;

/// Per-CPU data for Linux programs, on restartable sequences.
#[derive(Debug, Parser)]
#[command(name = "thiscpu", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measures the known designs of counters, limits, accounts and allocators side by side (the default)
    Bench(bench::Args),
    /// Says which mode this machine is in and why, tests it, and says what to do about what is missing
    Doctor {
        /// One JSON object instead of lines
        #[arg(long)]
        json: bool,
    },
    /// Runs a program on thiscpu's malloc, with a table of what it did if that is asked for
    Run(run::Args),
    /// Uses everything at once, under everything that can go wrong, and accounts for every unit
    Torture(torture::Args),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Some(Command::Bench(args)) => bench::main(&args),
        Some(Command::Doctor { json }) => doctor::run(json),
        Some(Command::Run(args)) => run::main(&args),
        Some(Command::Torture(args)) => torture::main(&args),
        None => bench::main(&bench::Args::default()),
    }
}

/// Writes to standard output; a reader that has gone away is no error.
fn print(text: &str) {
    use std::io::Write as _;
    let _ = std::io::stdout().write_all(text.as_bytes());
}

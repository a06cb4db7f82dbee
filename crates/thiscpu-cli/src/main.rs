//! `thiscpu`: the program that users of the library install.

mod doctor;
mod run;
mod self_test;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

/// Exit status when nothing was run, because the request was bad; clap's too.
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
    /// Show which tier this machine supports and why, self-test it, and suggest fixes
    Doctor {
        /// Print one JSON object instead of lines
        #[arg(long)]
        json: bool,
    },
    /// Run a program on thiscpu-malloc (add --stats for a table at exit)
    Run(run::Args),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Some(Command::Doctor { json }) => doctor::run(json),
        Some(Command::Run(args)) => run::main(&args),
        None => {
            print(&Cli::command().render_help().to_string());
            ExitCode::SUCCESS
        }
    }
}

/// Writes to standard output; a reader that has gone away is no error.
fn print(text: &str) {
    use std::io::Write as _;
    let _ = std::io::stdout().write_all(text.as_bytes());
}

//! `thiscpu`: shows what per-CPU data does for programs on this machine, runs programs on it, and
//! looks after segments.

// `println!` and `eprintln!` panic when they cannot write.
#![warn(clippy::print_stderr, clippy::print_stdout)]

mod demo;
mod doctor;
mod malloc_settings;
mod output;
mod profile;
mod run;
mod segment;
mod self_test;

use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory as _, Parser, Subcommand};
use thiscpu_program::manual;
use thiscpu_program::output::{FAILED, REFUSED};

/// Per-CPU data for Linux programs, on restartable sequences
///
/// Without a command, it runs the demo.
#[derive(Debug, Parser)]
#[command(name = "thiscpu", version)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the library's guarantees on this machine, beside the usual ways (the default)
    Demo(demo::Args),
    /// Show which tier this machine supports and why, self-test it, and suggest fixes
    Doctor(doctor::Args),
    /// Run a program on thiscpu-malloc (add --stats for a table at exit)
    Run(run::Args),
    /// Make a pprof profile or a flame graph of a heap profile, by the program thiscpu-profile
    #[command(disable_help_flag = true, after_long_help = profile::DETAILS)]
    Profile {
        /// The arguments of thiscpu-profile; --help lists them
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "ARGS",
            required = true
        )]
        arguments: Vec<std::ffi::OsString>,
    },
    /// List, show, check or remove segments: memory by which processes share counters and limits
    Segment(segment::Args),
    /// Print completions for a shell
    Completions {
        /// The shell to complete for
        shell: clap_complete::Shell,
    },
    /// Write man pages into a directory
    #[command(hide = true)]
    Man {
        /// The directory, which must exist
        directory: std::path::PathBuf,
    },
}

fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| {
        let is_run = std::env::args_os().nth(1).is_some_and(|word| word == "run");
        std::process::exit(match output::answer(&error) {
            // `env` ends with its own status for wrong arguments too: 2 could be the program's.
            status if is_run && status != 0 => run::FAILED.into(),
            status => status,
        })
    });
    match execute(cli.command) {
        Ok(code) => code,
        Err(error) => {
            output::note(&format!("{error:#}"));
            // The library's errors that end a command are about the value of THISCPU_TIER.
            ExitCode::from(if error.is::<thiscpu::Error>() { REFUSED } else { FAILED })
        }
    }
}

fn execute(command: Option<Command>) -> Result<ExitCode> {
    match command {
        Some(Command::Doctor(args)) => return doctor::main(&args),
        Some(Command::Segment(args)) => return segment::main(&args),
        Some(Command::Run(args)) => return Ok(run::main(&args)),
        Some(Command::Profile { arguments }) => return Ok(profile::main(&arguments)),
        Some(Command::Demo(args)) => demo::main(args.seconds)?,
        Some(Command::Completions { shell }) => {
            manual::completions("thiscpu", &Cli::command(), shell)?
        }
        Some(Command::Man { directory }) => manual::pages(Cli::command(), &directory)?,
        None => demo::main(demo::SECONDS)?,
    }
    Ok(ExitCode::SUCCESS)
}

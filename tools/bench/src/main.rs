//! `thiscpu-bench`: measures thiscpu beside the known designs of counters, limits, accounts,
//! metrics and allocators.
//!
//! A `Plan` is made from the command line and holds `Case`s: one thing measured for several
//! contenders with one number of threads. Running a case measures every contender once a round, so
//! that a machine that drifts affects all alike, and gives an `Outcome`. `figures` turns outcomes
//! into rows and tables, `report` into a page with plots.
//!
//! Everything is generic over the contender, and so compiled once for each: no call in a measured
//! loop goes through a pointer.

mod args;
mod bench;
mod case;
mod children;
mod contenders;
mod cpu_wait;
mod cpus;
mod deviations;
mod figures;
mod kind;
mod metric;
mod named;
mod plan;
mod preempt;
mod processes;
mod progress;
mod report;
mod rseq;
mod rss;
mod slice;
mod workloads;

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::{Parser, Subcommand};
use thiscpu_test_support::{
    stats,
    tool::output::{self, FAILED, complain, print_line},
};

use crate::{
    args::Args,
    workloads::{alloc, child_spec::ChildSpec, memory, walk},
};

/// The benchmark of thiscpu.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure the known designs and thiscpu's side by side (the default)
    Bench(Args),

    /// Draw a report's page and plots again from its results.json
    Report {
        /// The directory that `bench --report` has written
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },

    /// Measure memory and print it for the process that started this one
    #[command(name = memory::CHILD, hide = true)]
    MemoryChild {
        #[arg(value_parser = memory::ChildSpec::parse)]
        spec: memory::ChildSpec,
    },

    /// Use one allocator and print the result for the process that started this one
    #[command(name = alloc::CHILD, hide = true)]
    AllocChild {
        #[arg(value_parser = alloc::parse_child)]
        spec: ChildSpec,
    },

    /// Walk through one cell with one allocator, for the process that started this one
    #[command(name = walk::CHILD, hide = true)]
    WalkChild {
        #[arg(value_parser = walk::parse_child)]
        spec: ChildSpec,
    },
}

fn main() -> ExitCode {
    let done = match output::parse::<Cli>().command {
        Some(Command::Bench(args)) => return bench::main(&args),
        None => return bench::main(&Args::default()),
        Some(Command::Report { directory }) => report::redraw(&directory),
        Some(Command::MemoryChild { spec }) => memory::child(&spec).and_then(answer),
        Some(Command::AllocChild { spec }) => alloc::child(&spec).and_then(answer),
        Some(Command::WalkChild { spec }) => walk::child(&spec).and_then(answer),
    };
    done.map_or_else(|why| complain(&format!("{why:#}"), FAILED), |()| ExitCode::SUCCESS)
}

/// Prints a child's answer.
fn answer(text: String) -> Result<()> {
    print_line(&text).map(drop).map_err(anyhow::Error::msg)
}

//! `thiscpu-bench`: measures thiscpu beside the known designs of counters, limits, accounts, metrics
//! and allocators.
//!
//! A `Plan` is made of the command line and holds `Case`s: one thing measured for several contenders
//! with one number of threads. Running a case measures every contender once a round, so that a
//! machine that drifts affects all alike, and gives an `Outcome`. `figures` makes lines of JSON and
//! tables of outcomes, `report` a page with plots.
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
mod descriptions;
mod deviations;
mod figures;
mod kind;
mod metric;
mod output;
mod plan;
mod preempt;
mod progress;
mod report;
mod rseq;
mod rss;
mod slice;
mod workloads;

use thiscpu_test_support::stats;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::{
    args::Args,
    output::{end, print_line},
    workloads::{alloc, memory},
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

    /// Measure memory and print it for the process that started this one
    #[command(name = memory::CHILD, hide = true)]
    MemoryChild { order: memory::ChildSpec },

    /// Use one allocator and print the result for the process that started this one
    #[command(name = alloc::CHILD, hide = true)]
    AllocChild { order: alloc::ChildSpec },
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Some(Command::Bench(args)) => bench::main(&args),
        Some(Command::MemoryChild { order }) => {
            end(memory::child(order).and_then(|answer| print_line(&answer)))
        }
        Some(Command::AllocChild { order }) => {
            end(alloc::child(order).and_then(|answer| print_line(&answer)))
        }
        None => bench::main(&Args::default()),
    }
}

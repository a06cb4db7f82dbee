//! The torture test: all structures of `thiscpu` at once, under disturbances, with every unit
//! accounted for.
//!
//! Workers run random operations on all `structures`, while `disturbances` happen to them: signals
//! whose handlers use the same structures, moves to other CPUs, forks whose children check their
//! own copies, threads that come and go, threads that have no lane. Each worker records what it
//! does in an oracle. During the run, every answer is checked against what the oracle allows. After
//! the run, every structure must hold exactly what the oracle says.
//!
//! What each worker does follows from the seed. When the kernel interrupts it does not.

mod disturbances;
mod handlers;
mod oracle;
mod plan;
mod report;
mod run;
mod segment;
mod segment_files;
mod server;
mod shared;
mod structures;
mod violation;
mod watchdog;
mod worker;

use std::process::ExitCode;

use clap::Parser;
use thiscpu_test_support::tool::output::{self, FAILED, REFUSED, complain, note, print_line};

use crate::{plan::Plan, report::Report};

/// The text below the options in `--help`.
const DETAILS: &str = "\
Workers run random operations on every structure: counters, per-CPU words, pairs and stacks,
budgets, ledgers, slab caches and malloc under a heap profile. Signal handlers do the same, except
on ledgers and objects; they write heap profiles instead.
Threads migrate, come and go, and some have no lane; forked children check their own copies.
Every answer is checked against an oracle, and in the end no unit may be missing.

Counts in the report:
  exact_answers  sums, snapshots and takes
  probes, aborts sections that only spin for some microseconds, and how many of them were aborted:
                 a sample of what happens to the structures' own sections, which do not count
  migrations     operations after which a worker was on another CPU
  moves          changes of a thread's affinity
  signals        handlers run
  faults         page faults of this process, major ones included

With the same seed and threads each worker draws the same numbers; the kernel decides when it is
interrupted. A run that fails ends at once. Ctrl-C or SIGTERM ends a run early, and every unit is
still accounted for.

THISCPU_TIER=rseq-cid|rseq-cpu|atomic forces a tier.
Exit status: 0 every unit is accounted for, 1 a check failed or the report could not be written,
2 nothing was run because the request was bad.";

/// The text below the options in `server --help`.
const SERVER_DETAILS: &str = "\
Two acts at a time, in a random order: connections whose threads come, hand blocks over and end;
peaks; survivors that keep slabs in use; idle times; large blocks that are resized; tables of
values; forks and vforks; heap profiles; signals; limits of the address space and of data, which are
reached and left.

Each block in use is recorded outside of the allocator. A new block must not overlap any of them,
each must keep its content, and in the end no memory may be in use.

With the same seed each act draws the same numbers; the kernel decides how threads take turns.
A run that fails ends at once. THISCPU_TIER=rseq-cid|rseq-cpu|atomic forces a tier.
Exit status: 0 every block is accounted for, 1 a check failed or the report could not be written,
2 nothing was run because the request was bad. The allocator aborts when it notices a fault.";

/// The text below the options in `segment --help`.
const SEGMENT_DETAILS: &str = "\
Worker processes add to counters of a segment, sum them, acquire units of a budget, wait for units,
change the limit, fork children that hold units, and close all their descriptors. An auditor stops
them, kills them and starts others. Each time it compares the values of the segment with those that
the workers have said before and after each operation. After each second all workers are killed, and
all units must come back.

Counts in the report:
  audits          looks at a counter while all work; stops and kills have their own
  longest wait    the longest time that a worker waited for units
  longest return  the longest time until all units were back after the last worker had ended

With the same seed the auditor draws the same numbers; the kernel decides how processes take turns.
A run that fails ends at once. THISCPU_TIER=rseq-cid|rseq-cpu|atomic forces a tier.
Exit status: 0 every unit is accounted for, 1 a check failed or the report could not be written,
2 nothing was run because the request was bad.";

/// The text below the options in `segment-files --help`.
const SEGMENT_FILES_DETAILS: &str = "\
Images of a segment in use have counters, budgets with units that are held, waiters, and processes
that were killed in the middle of a call. Worker processes change one byte, some words or the length
of an image, before they attach to it or while they are attached. Then they make calls of each
object, list and view the objects, and detach. Each call must end with a value or a clear error,
within 30 seconds. The segment lies between two guards, so an access outside ends the run.

Counts in the report:
  refused           images to which no process could attach
  without an error  images with which each call succeeded; their values may be any

With the same seed the changes are the same, but kills may interrupt other calls. A run that fails
ends at once, and keeps the image in a file. THISCPU_TIER=rseq-cid|rseq-cpu|atomic forces a
tier.
Exit status: 0 each call ended, 1 a check failed or the report could not be written, 2 nothing was
run because the request was bad.";

/// Use every structure of thiscpu at once, under disturbances, and account for every unit.
#[derive(Debug, Parser)]
#[command(version, about, after_long_help = DETAILS, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    plan: Plan,

    /// Print one JSON object instead of lines
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Use thiscpu-malloc as a server does for a day, and check all blocks
    #[command(after_long_help = SERVER_DETAILS)]
    Server(server::Plan),
    /// Share a segment with processes that are killed, stopped and forked, and audit it
    #[command(after_long_help = SEGMENT_DETAILS)]
    Segment(segment::Plan),
    /// Damage images of a segment in use, and use them
    #[command(after_long_help = SEGMENT_FILES_DETAILS)]
    SegmentFiles(segment_files::Plan),
    /// Be one of these processes
    #[command(hide = true)]
    SegmentWorker(segment::Orders),
}

fn main() -> ExitCode {
    let Cli { command, plan, json } = output::parse();
    let tier = match thiscpu::tier() {
        Ok(tier) => tier.to_string(),
        Err(why) => return complain(&why, REFUSED),
    };
    match command {
        Some(Command::Server(plan)) => return serve(&plan, &tier),
        Some(Command::Segment(plan)) => return share(&plan, &tier),
        Some(Command::SegmentFiles(plan)) => return damage(&plan, &tier),
        Some(Command::SegmentWorker(orders)) => return segment::work(&orders),
        None => {}
    }
    let hung = |report: &Report| {
        // The run has failed, whether or not its report can be written.
        let _ = print(report, &tier, json);
        std::process::exit(FAILED.into());
    };
    match run::run(&plan, &hung) {
        Ok(report) => match print(&report, &tier, json) {
            Err(why) => complain(&why, FAILED),
            Ok(()) if report.failures().is_empty() => ExitCode::SUCCESS,
            Ok(()) => ExitCode::from(FAILED),
        },
        Err(why) => complain(&why, FAILED),
    }
}

/// Plays a server's day, and writes its report.
fn serve(plan: &server::Plan, tier: &str) -> ExitCode {
    // The allocator ends the process when it notices a fault, so there may be no report.
    note(&format!("seed {}", plan.seed));
    let hung = |report: &server::Report| {
        // The run has failed, whether or not its report can be written.
        let _ = print_line(report.to_text(tier).trim_end());
        std::process::exit(FAILED.into());
    };
    let report = server::run(plan, &hung);
    conclude(report.to_text(tier).trim_end(), report.has_failed())
}

/// Runs processes that share a segment, and writes the report.
fn share(plan: &segment::Plan, tier: &str) -> ExitCode {
    note(&format!("seed {}", plan.seed));
    match segment::run(plan) {
        Ok(report) => conclude(&with_tier(report.text(), tier), report.has_failed()),
        Err(why) => complain(&why, FAILED),
    }
}

/// Damages and uses images of a segment, and writes the report.
fn damage(plan: &segment_files::Plan, tier: &str) -> ExitCode {
    note(&format!("seed {}", plan.seed));
    match segment_files::run(plan) {
        Ok(report) => conclude(&with_tier(report.text(), tier), report.has_failed()),
        Err(why) => complain(&why, FAILED),
    }
}

/// Returns a report with a line for the tier before it.
fn with_tier(report: &str, tier: &str) -> String {
    format!("{:<22} {tier}\n{report}", "tier")
}

/// Writes a report, and returns the exit status.
fn conclude(report: &str, has_failed: bool) -> ExitCode {
    match print_line(report) {
        Err(why) => complain(&why, FAILED),
        Ok(_) if has_failed => ExitCode::from(FAILED),
        Ok(_) => ExitCode::SUCCESS,
    }
}

/// Writes the report to standard output; as JSON, also its failures to standard error.
fn print(report: &Report, tier: &str, json: bool) -> Result<(), String> {
    if !json {
        return print_line(report.to_text(tier).trim_end()).map(drop);
    }
    for failure in report.failures() {
        note(&format!("seed {}: {failure}", report.seed()));
    }
    print_line(&format!("{:#}", report.to_json(tier))).map(drop)
}

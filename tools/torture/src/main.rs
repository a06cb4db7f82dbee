//! `thiscpu-torture`: reads the options, runs the torture test, and prints its report.

use std::process::ExitCode;

use clap::Parser;
use thiscpu_test_support::tool::output::{self, FAILED, REFUSED, complain, note, print_line};
use thiscpu_torture::{Options, Plan, Report, parse_seconds, parse_seed, parse_threads, run};

/// The text below the options in `--help`.
const DETAILS: &str = "\
Workers run random operations on every structure: counters, per-CPU words, pairs and stacks,
budgets, ledgers and slab caches. Signal handlers do the same, except on ledgers and caches.
Threads migrate, come and go, and some have no lane; forked children check their own copies.
Every answer is checked against an oracle, and in the end no unit may be missing.

SingleCounter in the report:
  exact_answers  sums, snapshots and takes
  probes, aborts sections that only spin for some microseconds, and how many of them were aborted:
                 a sample of what happens to the structures' own sections, which do not count
  migrations     operations after which a worker was on another CPU
  moves          changes of a thread's affinity
  signals        handlers run
  faults         page faults of this process, major ones included

With the same seed and threads each worker draws the same numbers; the kernel decides when it is
interrupted. A run that fails ends at once. Ctrl-C ends a run early, and every unit is still
accounted for.

THISCPU_TIER=rseq-cid|rseq-cpu|atomic forces a tier.
Exit status: 0 every unit is accounted for, 1 a check failed or the report could not be written,
2 nothing was run because the request was bad.";

/// Use every structure of thiscpu at once, under disturbances, and account for every unit.
#[derive(Debug, Parser)]
#[command(version, about, after_long_help = DETAILS)]
struct Cli {
    /// Run for S seconds [default: 10]
    #[arg(long, value_name = "S", value_parser = parse_seconds, allow_negative_numbers = true)]
    seconds: Option<f64>,

    /// Start N workers that stay for the whole run [default: 8 for each CPU]
    #[arg(long, value_name = "N", value_parser = parse_threads, allow_negative_numbers = true)]
    threads: Option<usize>,

    /// Start the random numbers at X, such as 7 or 0x7 [default: another seed each time]
    #[arg(long, value_name = "X", value_parser = parse_seed, allow_negative_numbers = true)]
    seed: Option<u64>,

    /// Print one JSON object instead of lines
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let Cli { seconds, threads, seed, json } = output::parse();
    let tier = match thiscpu::tier() {
        Ok(tier) => tier.to_string(),
        Err(why) => return complain(&why, REFUSED),
    };
    let plan = Plan::new(&Options { seconds, threads, seed });
    let hung = |report: &Report| {
        // The run has failed, whether or not its report can be written.
        let _ = print(report, &tier, json);
        std::process::exit(FAILED.into());
    };
    match run(&plan, &hung) {
        Ok(report) => match print(&report, &tier, json) {
            Err(why) => complain(&why, FAILED),
            Ok(()) if report.failures().is_empty() => ExitCode::SUCCESS,
            Ok(()) => ExitCode::from(FAILED),
        },
        Err(why) => complain(&why, FAILED),
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

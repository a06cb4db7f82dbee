//! `thiscpu torture`: reads what is asked for, runs it, and prints what came of it.

use std::process::ExitCode;

use thiscpu_torture::{Options, Plan, Report, parse_seconds, parse_seed, parse_threads, run};

use crate::{FAILED, REFUSED};

/// What `--help` says below the options.
const DETAILS: &str = "\
Workers add, sum, set, take, compare, push, pop and exchange at random, on counters of several
kinds, per-CPU words, pairs and stacks, budgets, ledgers and slab caches, while signals interrupt them with
handlers that do the same (with ledgers and slab caches nothing), threads are moved from CPU to CPU, children are
forked that check everything on their own, threads and objects come and go, and some threads have
no lane. Each keeps books; every answer must fit them, and in the end everything must come to
exactly what they say.

Of the counts in the report:
  exact_answers  sums, snapshots and takes
  probes, aborts sections that only linger for some microseconds, and how many of them were aborted:
                 a sample of what the structures' own sections meet, which do not count their aborts
  migrations     turns after which a worker was on another CPU
  moves          changes of a thread's affinity
  signals        handlers run
  faults         page faults of this process, major ones included

With the same seed and threads each worker draws the same numbers; when it is interrupted is up to
the kernel. A run that fails ends at once. Ctrl-C ends a run early, and all is accounted for.

THISCPU_TIER=rseq-cid|rseq-cpu|atomic forces what thiscpu runs on.
Exit status: 0 every unit is accounted for, 1 something is wrong, 2 nothing was run because of a bad
request.";

/// Options of `thiscpu torture`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = DETAILS)]
pub(crate) struct Args {
    /// How long [default: 10]
    #[arg(long, value_name = "S", value_parser = parse_seconds, allow_negative_numbers = true)]
    seconds: Option<f64>,

    /// How many threads work from beginning to end [default: 8 for each CPU]
    #[arg(long, value_name = "N", value_parser = parse_threads, allow_negative_numbers = true)]
    threads: Option<usize>,

    /// Where random numbers begin, such as 7 or 0x7 [default: somewhere else each time]
    #[arg(long, value_name = "X", value_parser = parse_seed, allow_negative_numbers = true)]
    seed: Option<u64>,

    /// Print one JSON object instead of lines
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub(crate) fn main(args: &Args) -> ExitCode {
    let tier = match thiscpu::tier() {
        Ok(tier) => tier.to_string(),
        Err(why) => {
            eprintln!("error: {why}");
            return ExitCode::from(REFUSED);
        }
    };
    let Args { seconds, threads, seed, json } = *args;
    let plan = Plan::new(&Options { seconds, threads, seed });
    let hung = |report: &Report| {
        print(report, &tier, json);
        std::process::exit(FAILED.into());
    };
    match run(&plan, &hung) {
        Ok(report) => {
            print(&report, &tier, json);
            ExitCode::from(if report.failures().is_empty() { 0 } else { FAILED })
        }
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::from(FAILED)
        }
    }
}

/// The report to standard output, and what is wrong to standard error too if the report is for
/// programs.
fn print(report: &Report, tier: &str, json: bool) {
    if !json {
        return crate::print(&report.to_text(tier));
    }
    crate::print(&format!("{:#}\n", report.to_json(tier)));
    for failure in report.failures() {
        eprintln!("seed {}: {failure}", report.seed());
    }
}

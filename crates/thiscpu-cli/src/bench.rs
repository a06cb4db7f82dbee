//! `thiscpu bench`: reads what is asked for, runs it, and prints what came of it.

use std::{
    fmt::Display,
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::{Context as _, Result};
use thiscpu_bench::{
    Case, Name, Options, Outcome, Plan, Progress, Workload, memory, object, parse_seconds,
    parse_threads, report,
};
use thiscpu_report::Report;

use crate::{FAILED, REFUSED};

/// What `--help` says below the options.
const DETAILS: &str = "\
Workloads (case: threads by default):
  add (1 and 2)                     every thread adds 1
  commit, accounting (2 and 16)     plus and minus 32,768 pages, around nothing
  commit, syscalls (2 and 16)       the same around a real mmap and munmap of 128 MiB; the
                                    contender `none` does only the system calls
  sum, token (4)                    adders pass a token, +1 here and -1 there, so that the true
                                    value is 0 or 1, while one thread sums; --threads counts the
                                    adders, of which the later half have no lane
  sum, slowdown (always 2)          what two adders on two CPUs lose to a third thread that sums
                                    1,000 times a second, its own time included
  threshold (2 and 16)              +1, compare with a limit the value hovers at, -1
  nospace, far (1 and 2)            one block allocated and freed, far from the limit
  nospace, near (2 and 16)          a call that allocates or frees 1 to 64 blocks, where the limit
                                    is what all writers may hold: no refusal can be right
  nospace, swing (2 and 16)         such a call by writers that allocate until they are refused, and
                                    then free all
  nospace, full (2 and 16)          such a call at the limit, half of those that allocate refused
  fault, accounting (2 and 16)      64 pages charged one by one to the three counters of one account,
                                    then uncharged; an operation is one page
  fault, syscalls (2 and 16)        the same around a real page fault for each and an madvise; the
                                    contender `none` does only those
  tenants, one (1 and 2)            one unit charged to the account of one owner
  tenants, live-8, live-64 and live-512 (2)
                                    the same to accounts of so many owners, round robin
  tenants, zipf (2)                 the same to accounts of 1,000,000 owners, as a Zipf law of
                                    exponent 0.99 draws them before the slice
  tenants, report (always 1)        the same by one thread, while another makes reports over all
  tenants, audit (2, 4 and 16)      not timed: charges to 2,048 accounts that are opened and closed,
                                    while units move, sums and reports are taken, and the process
                                    forks; each unit is accounted for. Only thiscpu
  metrics, increment (1 and 2)      one counter incremented by every thread, by a handle it holds
  metrics, scrape (always 2)        one scrape of 100,000 counters, all incremented on two CPUs since
                                    the one before
  memory (always 2)                 1,000,000 counters (striped: 5,000), each used from two CPUs,
                                    in a process of their own; one round
  memory, accounts (always 2)       the same with 1,000,000 accounts of four counters
  object, pair-8 to pair-16384 (1 and 2)
                                    one object of so many bytes allocated and freed
  object, burst-64 and burst-1024 (1 and 2)
                                    10,000 allocated, then freed; an operation is one of them
  object, remote-64 (always 2)      one allocated by a thread and freed by another, in batches of 64
  object, crowd-64 (64)             one allocated, and a random one of the thread's 16 freed
  object, idle-64 (always 64)       not timed: what is resident while each thread has 31 objects, from
                                    16 bytes to 16 KiB, above what is resident without them
                                    (each slice is a process of its own; of pair and burst only
                                    64 bytes are run unless object is named)

Contenders:
  atomic         one shared word
  spinlock-fold  lanes folded into a total under a spinlock (Linux before 2011)
  dumazet        lanes folded into an atomic total, sums announced
  li-gate        lanes folded into an atomic total, adders and sums behind gates
  striped        the contatori crate
  section        the floor of an add: the least a restartable section can do; its sums and
                 comparisons are not exact
  thiscpu        this library
for nospace:
  atomic-cas     one shared word, by compare-exchange
  compare-twice  the kernel's counter, compared before and after (XFS in 2015); may refuse wrongly
  compare-once   the same without the second compare; grants past the limit
  limited-add    the kernel's counter, added to up to a limit (Linux 6.7); grants past the limit
  semaphore      the tokio crate's
  thiscpu        this library
for fault and tenants:
  atomic         shared words of each account
  kamezawa       one cached owner a CPU (proposed for Linux in 2009)
  per-thread-64  one cached owner a thread, handed in after 64 charges (Linux until 2022)
  memcg-stock    a stock of charges for seven owners a CPU, random ones of whom make room
  thiscpu        this library
for metrics:
  metrics-exporter-prometheus, prometheus-client
                 these; the first by handles of the `metrics` facade
  thiscpu        thiscpu-metrics, by its own handles
  thiscpu-facade the same by handles of the facade
for object:
  glibc          the C library's malloc and free
  mimalloc, jemalloc, snmalloc, rpmalloc
                 these, by crates of their names; only in a program built with the feature `peers`:
                 `cargo run --release --features peers -- bench object`
  slub-lock      a freelist a CPU behind a lock (Linux until 2010); all objects have one size
  slub-tid       a freelist a CPU, changed together with a transaction id (Linux until 2025)
  thiscpu-cache  this library's cache of objects of one size
  thiscpu-malloc this project's malloc and free
  thiscpu-hardened
                 the same as with `thiscpu run --harden`

Metrics:
  time_per_op         what a thread sees while it runs; an operation is all that one turn of the loop
                      does. Up to a thread a CPU: time of all threads, less what they waited while
                      other programs had their CPUs, / operations; with more threads: wall time x
                      CPUs / operations
  thiscpu_ratio       thiscpu's time_per_op / this contender's, round by round; in scrape of
                      time_per_scrape
  cache_ratio         the same of thiscpu-cache
  malloc_ratio        the same of thiscpu-malloc; in idle-64 of resident_bytes
  hardened_ratio      the same of thiscpu-hardened, to thiscpu-malloc only
  ratio_to_none       this contender's time_per_op / that without accounting, round by round
  sums, wrong_sums    sums taken in all rounds, and those that were neither 0 nor 1
  max_error           the largest distance of a sum from what can be true
  time_per_sum        median of the calls, the clock's own 30 ns or so included; _p999: 99.9 %
  token_moves         how often the token moved in all rounds
  over_grants         grants with which more was held than the limit allows
  wrong_refusals      refusals of what was free at every instant of the call; both are looked for
                      in `audited` calls, which are not timed (of tenants: charges)
  refused             percent of the audited calls that acquire
  lost_units          units that were charged in the case audit of tenants, and are missing
  doubled_units       units that are there and nobody charged; a run that has either fails
  recalls_per_second  how often thiscpu gathered all units
  adders_slowdown     percent of the adders' undisturbed work
  hit_rate            percent of the charges that touched nothing which all CPUs share
  time_per_scrape     median time of one scrape of all `series`
  time_per_report     median time of a report over all accounts at one instant
  charge_p9999        99.99 % of the charges meanwhile take at most that; _alone: without reports
  longest_charge      the longest of them
  counters, accounts, resident, resident_bytes, resident_bytes_per_counter, resident_bytes_per_account,
  time_per_create

Rounds are interleaved: each measures every contender once. With slices shorter than the default a
run is a trial: fewer than 100,000 sums, a hundredth of the counters, accounts and
series.

--report DIR writes index.html, a page with a plot of each case, each plot as a file (*.svg), and the
figures as results.json, results.csv, rounds.csv and deviations.csv; docs/bench.md says what is in them. All are written
anew after each case, so that a run which ends early leaves what it has measured.

THISCPU_TIER=rseq-cid|rseq-cpu|atomic forces what thiscpu runs on.
Exit status: 0 all was run, 1 something failed, 2 nothing was run because of a bad request.";

/// Options of `thiscpu bench`.
#[derive(Debug, Default, clap::Args)]
#[command(after_long_help = DETAILS)]
pub(crate) struct Args {
    /// What to run: add, commit, sum, threshold, memory, nospace, fault, tenants, metrics, object
    /// [default: all]
    #[arg(value_name = "WORKLOAD")]
    workloads: Vec<Workload>,

    /// Which cases of these, such as pair-64,idle-64 [default: all]
    #[arg(long = "case", value_name = "NAME,...", value_delimiter = ',')]
    cases: Vec<String>,

    /// Whom to measure; may be given several times [default: all]
    #[arg(long = "contender", value_name = "NAME", value_delimiter = ',')]
    contenders: Vec<Name>,

    /// With how many threads, such as 1,2,16 [default: depends on the workload]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = parse_threads)]
    threads: Vec<usize>,

    /// Length of a slice, in which one contender is measured once [default: 0.05]
    #[arg(long, value_name = "S", value_parser = parse_seconds, allow_negative_numbers = true)]
    seconds: Option<f64>,

    /// How often everything is measured [default: 7]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000),
          allow_negative_numbers = true)]
    rounds: Option<u32>,

    /// In nospace, audit at least so many calls of each contender in each case but far, in tenants so
    /// many charges in the case audit, with each number of threads [default: as many as fit into a
    /// quarter of the slices, in tenants into a few tenths of a second]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    audit: u64,

    /// Also write a page with plots to DIR, and the figures as JSON and CSV beside it. DIR is made if it is not
    /// there; an earlier report in it is replaced; one that has files and no report is refused
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,

    /// Print one JSON object a line instead of tables
    #[arg(long)]
    json: bool,

    /// Measure memory and print it for the process that started this one
    #[arg(long = memory::CHILD_FLAG, hide = true)]
    memory_child: Option<memory::Order>,

    /// Use one allocator and print what came of it for the process that started this one
    #[arg(long = object::CHILD_FLAG, hide = true)]
    object_child: Option<object::Order>,
}

/// Runs the subcommand.
pub(crate) fn main(args: &Args) -> ExitCode {
    // First of all: whoever allocates in such a process, it may be somebody to whom this library means nothing.
    if let Some(order) = args.object_child {
        return end(object::child(order).and_then(|answer| print_line(&answer)));
    }
    let tier = match thiscpu::tier() {
        Ok(tier) => tier,
        Err(why) => return complain(&why, REFUSED),
    };
    if let Some(order) = args.memory_child {
        return end(memory::child(order).and_then(|report| print_line(&report)));
    }
    let plan = match Plan::new(&args.options()) {
        Ok(plan) => plan,
        Err(why) => return complain(&why, REFUSED),
    };
    // Before anything is measured, which takes minutes.
    let page = args.report.as_deref().map(|dir| Report::prepare(dir, &plan, arguments()));
    match page.transpose() {
        Ok(page) => end(run(&plan, args.json, &tier.to_string(), page)),
        Err(why) => complain(&format!("{why:#}"), REFUSED),
    }
}

/// What the program was called with, for people to read and repeat.
fn arguments() -> impl Iterator<Item = String> {
    std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned())
}

/// What the process ends with.
fn end(ran: Result<()>) -> ExitCode {
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => complain(&format!("{error:#}"), FAILED),
    }
}

impl Args {
    fn options(&self) -> Options {
        Options {
            workloads: self.workloads.clone(),
            cases: self.cases.clone(),
            contenders: self.contenders.clone(),
            threads: self.threads.clone(),
            seconds: self.seconds,
            rounds: self.rounds,
            audited_min: self.audit,
        }
    }
}

/// Runs the cases one after the other, and prints each as soon as it is done; then what some of them come to. The page, if one is
/// wanted, is written after each case: what was measured is there if a later one fails.
fn run(plan: &Plan, json: bool, tier: &str, mut page: Option<Report>) -> Result<()> {
    let has_page = page.is_some();
    let mut is_read = true;
    if json {
        plan.absentees.iter().for_each(|why| warn(why));
    } else {
        is_read = goes_on(print_line(&report::heading(plan, tier)), has_page)?;
    }
    let progress = Progress::new(plan);
    let mut outcomes = Vec::new();
    for case in &plan.cases {
        outcomes.push(measure(case, &progress)?);
        if let Some(page) = &mut page {
            page.write(&outcomes)?;
        }
        if let Some(outcome) = outcomes.last().filter(|_| is_read) {
            is_read = goes_on(progress.aside(|| print_outcome(outcome, json)), has_page)?;
        }
    }
    if !json && is_read {
        for grid in report::summary(&outcomes) {
            progress.aside(|| print_line(&format!("\n{grid}")))?;
        }
    }
    if let Some(page) = page {
        progress.aside(|| warn(&format!("the report is in {}", page.page().display())));
    }
    Ok(())
}

/// Whether there is somebody to print to. Without a page that is the end.
fn goes_on(printed: Result<()>, has_page: bool) -> Result<bool> {
    match printed {
        Err(error) if has_page && is_closed_pipe(&error) => Ok(false),
        other => other.map(|()| true),
    }
}

fn measure(case: &Case, progress: &Progress) -> Result<Outcome> {
    case.run(|contender, round| {
        progress.begin(format!("{}: {contender}, round {}", case.title(), round + 1));
    })
}

fn print_outcome(outcome: &Outcome, json: bool) -> Result<()> {
    if json {
        let rows = report::rows(outcome);
        let lines: Vec<String> = rows.iter().map(report::Row::to_json).collect();
        print_line(&lines.join("\n"))
    } else {
        print_line(&format!("\n{}", report::table(outcome)))
    }
}

/// Prints without the panic of `println!` when nobody reads any more.
fn print_line(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}")
        .and_then(|()| stdout.flush())
        .context("cannot write to standard output")
}

/// Whoever read the output has seen enough: an end, not a failure.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn complain(why: &impl Display, status: u8) -> ExitCode {
    warn(&format!("error: {why}"));
    ExitCode::from(status)
}

/// Says something to people. If standard error is closed there is nobody to say it to.
fn warn(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

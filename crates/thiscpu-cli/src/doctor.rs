//! `thiscpu doctor`: which tier this machine supports, why, and what to do about it.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::Result;
use serde_json::{Value, json};
use thiscpu::{Budget, Cache, Counter, CpuSet, Degradation, Registrar, SystemInfo, Tier};

use crate::malloc_settings::FromEnvironment;
use crate::output;
use crate::self_test::{self, Outcome};

/// Exit status where a self-test failed.
const BROKEN: u8 = 1;
/// Exit status where something is degraded, and slower than it could be.
const DEGRADED: u8 = 3;

const DETAILS: &str = "\
Exit status: 0 fast tier (rseq-cid or rseq-cpu); 3 degraded (the atomic tier, or anything else that
the lines \"degraded\" list: slower than it could be); 1 broken (a self-test or the doctor failed);
2 wrong arguments, or a wrong THISCPU_TIER, for which --json prints an object with \"error\".";

/// Options of `thiscpu doctor`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = DETAILS)]
pub(crate) struct Args {
    /// Print one JSON object instead of lines
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub(crate) fn main(args: &Args) -> Result<ExitCode> {
    if let (Err(why), true) = (thiscpu::tier(), args.json) {
        output::print(&format!("{:#}\n", json!({ "error": why.to_string() })))?;
    }
    thiscpu::tier()?;
    let tests = self_test::run_all();
    use_structures();
    let report = thiscpu::system_info()?;
    output::print(&match args.json {
        true => format!("{:#}\n", to_json(&report, &tests)),
        false => to_text(&report, &tests),
    })?;
    let is_broken = tests.iter().any(|(_, outcome)| matches!(outcome, Outcome::Failed(_)));
    Ok(match () {
        () if is_broken => ExitCode::from(BROKEN),
        () if !report.degradations.is_empty() => ExitCode::from(DEGRADED),
        () => ExitCode::SUCCESS,
    })
}

/// Uses each kind of structure, so that the report lists what is degraded for a program, too.
fn use_structures() {
    const MANY: usize = 1000;
    let (counter, budget, cache) = (Counter::new(), Budget::new(1 << 20), Cache::<u64>::new());
    for _ in 0..MANY {
        counter.inc();
        if budget.try_acquire(1).is_ok() {
            budget.release(1);
        }
    }
    // Without memory for objects this fails, which is no degradation.
    drop(cache.prefill(MANY));
    // Without fences a sum panics, which says no more than the report does.
    if thiscpu::__internal::has_sums() {
        std::hint::black_box(counter.sum());
    }
}

fn registrar(report: &SystemInfo) -> &'static str {
    match report.registrar {
        Registrar::Libc => "the C library",
        Registrar::Thiscpu => "thiscpu, for each thread at its first use",
        Registrar::Nobody => "no one",
    }
}

fn why(report: &SystemInfo) -> String {
    match report.obstacles.first() {
        _ if report.forced => "requested by THISCPU_TIER".to_owned(),
        None => "the best tier".to_owned(),
        Some((better, why)) => format!("not {better}: {why}"),
    }
}

fn to_text(report: &SystemInfo, tests: &[(&str, Outcome)]) -> String {
    let mut text = String::new();
    let mut line = |label: &str, value: String| {
        let _ = writeln!(text, "{label:<14} {value}");
    };
    line("tier", format!("{} ({})", report.tier, why(report)));
    line(
        "rseq",
        match report.registrar {
            Registrar::Nobody => "not registered".to_owned(),
            _ => format!(
                "registered by {} with {} bytes; this kernel fills in {}",
                registrar(report),
                report.rseq_size,
                match report.rseq_feature_size {
                    0 => "the original fields".to_owned(),
                    bytes => format!("{bytes}"),
                }
            ),
        },
    );
    line("mm_cid", if report.mm_cid { "yes" } else { "no" }.to_owned());
    line(
        "membarrier",
        match report.membarrier {
            Ok(()) => "available; it can fence sections".to_owned(),
            Err(errno) => format!("unavailable: {}", std::io::Error::from_raw_os_error(errno)),
        },
    );
    let cpus = |set: &CpuSet| format!("{set} ({})", set.len());
    line("CPUs possible", cpus(&report.cpus_possible));
    line(
        "CPUs online",
        report.cpus_online.as_deref().map_or_else(|| "unknown: no /sys".to_owned(), cpus),
    );
    line("CPUs allowed", cpus(&report.cpus_allowed));
    line("NUMA nodes", cpus(&report.nodes));
    line("lanes", format!("{} in use of {}", report.lanes_in_use, report.lanes_max));
    line("shared lane", format!("{} calls found no other lane", report.shared_lane_calls));
    for degradation in &report.degradations {
        line("degraded", describe(degradation));
    }
    line(
        "counter size",
        format!(
            "{} bytes, then {} per lane in use and {} for the shared lane",
            report.counter_bytes, report.counter_bytes_per_lane, report.counter_bytes_per_lane
        ),
    );
    for (name, outcome) in tests {
        let outcome = match outcome {
            Outcome::Passed => "ok".to_owned(),
            Outcome::Failed(why) => format!("FAILED: {why}"),
            Outcome::Skipped(why) => format!("not tested: {why}"),
        };
        line("self-test", format!("sections abort on {name}: {outcome}"));
    }
    for setting in FromEnvironment::read().lines() {
        line("malloc", setting);
    }
    for advice in advice(report, tests) {
        line("hint", advice);
    }
    text
}

/// Returns what is degraded, why, since when, and how often it occurred.
fn describe(degradation: &Degradation) -> String {
    let since = httpdate::fmt_http_date(degradation.since);
    format!("{}: {degradation}; since {since}, {} times", degradation.kind, degradation.occurrences)
}

/// Returns a fix for each feature that is missing.
fn advice(report: &SystemInfo, tests: &[(&str, Outcome)]) -> Vec<String> {
    let mut advice = Vec::new();
    if report.forced {
        advice.push("unset THISCPU_TIER to use the best tier of this machine".to_owned());
    }
    if report.membarrier.is_err() {
        advice.push(
            "run Linux 5.10 or later, and allow membarrier in the sandbox (old seccomp profiles of \
             container engines deny it)"
                .to_owned(),
        );
    }
    if report.registrar == Registrar::Nobody && report.membarrier.is_ok() && !report.forced {
        advice.push(
            "run Linux 4.18 or later, allow rseq in the sandbox, and remove libraries that \
             register rseq themselves (they usually require GLIBC_TUNABLES=glibc.pthread.rseq=0)"
                .to_owned(),
        );
    }
    if !report.mm_cid && report.registrar != Registrar::Nobody {
        advice.push(
            "run Linux 6.3 or later for mm_cid: a process that uses few of many CPUs needs \
             fewer lanes"
                .to_owned(),
        );
    }
    if tests.iter().any(|(_, outcome)| matches!(outcome, Outcome::Failed(_))) {
        advice.push(
            "this kernel does not abort sections as rseq requires: run with THISCPU_TIER=atomic, \
             and report the kernel's version"
                .to_owned(),
        );
    }
    advice
}

fn to_json(report: &SystemInfo, tests: &[(&str, Outcome)]) -> Value {
    let set = |set: &CpuSet| json!({ "list": set.to_string(), "count": set.len() });
    let obstacles: Vec<_> = report
        .obstacles
        .iter()
        .map(|(tier, why)| json!({ "tier": tier.name(), "why": why }))
        .collect();
    let degradations: Vec<_> = report
        .degradations
        .iter()
        .map(|degradation| {
            let since = degradation.since.duration_since(SystemTime::UNIX_EPOCH);
            json!({
                "kind": degradation.kind.name(),
                "why": degradation.kind.reason(),
                "errno": degradation.errno,
                "since_unix_seconds": since.map_or(0.0, |since| since.as_secs_f64()),
                "occurrences": degradation.occurrences,
            })
        })
        .collect();
    let tests_json: Vec<_> = tests
        .iter()
        .map(|(name, outcome)| {
            let (result, why) = match outcome {
                Outcome::Passed => ("passed", None),
                Outcome::Failed(why) => ("failed", Some(why.as_str())),
                Outcome::Skipped(why) => ("skipped", Some(*why)),
            };
            json!({ "aborted_by": name, "result": result, "why": why })
        })
        .collect();
    json!({
        "tier": report.tier.name(),
        "forced": report.forced,
        "why": why(report),
        "obstacles": obstacles,
        "tiers": Tier::ALL.map(Tier::name),
        "rseq": {
            "registered_by": registrar(report),
            "size_bytes": report.rseq_size,
            "feature_size_bytes": report.rseq_feature_size,
        },
        "mm_cid": report.mm_cid,
        "membarrier": report.membarrier.is_ok(),
        "cpus_possible": set(&report.cpus_possible),
        "cpus_online": report.cpus_online.as_deref().map(set),
        "cpus_allowed": set(&report.cpus_allowed),
        "numa_nodes": set(&report.nodes),
        "degradations": degradations,
        "shared_lane_calls": report.shared_lane_calls,
        "lanes_in_use": report.lanes_in_use,
        "lanes_max": report.lanes_max,
        "counter_bytes": report.counter_bytes,
        "counter_bytes_per_lane": report.counter_bytes_per_lane,
        "self_tests": tests_json,
        "malloc": FromEnvironment::read().to_json(),
        "hints": advice(report, tests),
    })
}

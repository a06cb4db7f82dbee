//! `thiscpu doctor`: which mode is this machine in, why, and what to do about it.

use std::fmt::Write as _;
use std::process::ExitCode;

use serde_json::{Value, json};
use thiscpu::{Registrar, Report, Tier};

use crate::self_test::{self, Outcome};

/// Runs the report and the self-tests. Exit status: 0, 1 if a self-test failed, 2 if the setup is
/// wrong (`THISCPU_TIER`).
pub(crate) fn run(as_json: bool) -> ExitCode {
    let report = match thiscpu::report() {
        Ok(report) => report,
        Err(error) => {
            eprintln!("thiscpu: {error}");
            return ExitCode::from(2);
        }
    };
    let tests = self_test::run_all();
    let text = match as_json {
        true => format!("{:#}\n", to_json(&report, &tests)),
        false => to_text(&report, &tests),
    };
    crate::print(&text);
    match tests.iter().any(|(_, outcome)| matches!(outcome, Outcome::Failed(_))) {
        true => ExitCode::from(1),
        false => ExitCode::SUCCESS,
    }
}

fn registrar(report: &Report) -> &'static str {
    match report.registrar {
        Registrar::Libc => "the C library",
        Registrar::Thiscpu => "thiscpu, each thread at its first use",
        Registrar::Nobody => "nobody",
    }
}

fn why(report: &Report) -> String {
    match report.obstacles.first() {
        _ if report.forced => "asked for by THISCPU_TIER".to_owned(),
        None => "the best there is".to_owned(),
        Some((better, why)) => format!("not {better}: {why}"),
    }
}

fn to_text(report: &Report, tests: &[(&str, Outcome)]) -> String {
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
                "registered by {}, which states {} bytes; this kernel fills in {}",
                registrar(report),
                report.rseq_size,
                match report.rseq_feature_size {
                    0 => "the original fields".to_owned(),
                    bytes => format!("{bytes}"),
                }
            ),
        },
    );
    line("mm_cid", yes_no(report.mm_cid).to_owned());
    line(
        "membarrier",
        match report.membarrier {
            Ok(()) => "yes, it can fence sections".to_owned(),
            Err(errno) => format!("no: {}", std::io::Error::from_raw_os_error(errno)),
        },
    );
    let cpus = |set: &thiscpu::CpuSet| format!("{set} ({})", set.len());
    line("CPUs possible", cpus(&report.cpus_possible));
    line(
        "CPUs online",
        report.cpus_online.as_ref().map_or_else(|| "unknown: no /sys".to_owned(), cpus),
    );
    line("CPUs allowed", cpus(&report.cpus_allowed));
    line("NUMA nodes", cpus(&report.nodes));
    line("lanes", format!("{} in use of {}", report.lanes_in_use, report.lanes_max));
    line(
        "a counter",
        format!(
            "{} bytes, then {} for each lane in use and {} shared",
            report.counter_bytes, report.counter_bytes_per_lane, report.counter_bytes_per_lane
        ),
    );
    for (name, outcome) in tests {
        line("self-test", format!("a section is aborted by {name}: {}", in_words(outcome)));
    }
    for advice in advice(report, tests) {
        line("to do", advice);
    }
    text
}

fn yes_no(value: bool) -> &'static str {
    match value {
        true => "yes",
        false => "no",
    }
}

fn in_words(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Passed => "ok".to_owned(),
        Outcome::Failed(why) => format!("FAILED: {why}"),
        Outcome::Skipped(why) => format!("not tested: {why}"),
    }
}

/// What to do about each thing that is missing.
fn advice(report: &Report, tests: &[(&str, Outcome)]) -> Vec<String> {
    let mut advice = Vec::new();
    if report.forced {
        advice.push("unset THISCPU_TIER to get the best tier this machine has".to_owned());
    }
    if report.membarrier.is_err() {
        advice.push(
            "run Linux 5.10 or later, and let the sandbox allow membarrier (old seccomp profiles \
             of container engines do not)"
                .to_owned(),
        );
    }
    if report.registrar == Registrar::Nobody && report.membarrier.is_ok() && !report.forced {
        advice.push(
            "run Linux 4.18 or later, let the sandbox allow rseq, and drop other libraries that \
             register it for themselves (GLIBC_TUNABLES=glibc.pthread.rseq=0 is what they ask for)"
                .to_owned(),
        );
    }
    if !report.mm_cid && report.registrar != Registrar::Nobody {
        advice.push(
            "Linux 6.3 or later gives mm_cid: fewer lanes where a process uses few of many CPUs"
                .to_owned(),
        );
    }
    if tests.iter().any(|(_, outcome)| matches!(outcome, Outcome::Failed(_))) {
        advice.push(
            "this kernel does not keep rseq's promise: run with THISCPU_TIER=atomic, and report \
             the kernel's version"
                .to_owned(),
        );
    }
    advice
}

fn to_json(report: &Report, tests: &[(&str, Outcome)]) -> Value {
    let set = |set: &thiscpu::CpuSet| json!({ "list": set.to_string(), "count": set.len() });
    let obstacles: Vec<_> = report
        .obstacles
        .iter()
        .map(|(tier, why)| json!({ "tier": tier.name(), "why": why }))
        .collect();
    let tests: Vec<_> = tests
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
        "cpus_online": report.cpus_online.as_ref().map(set),
        "cpus_allowed": set(&report.cpus_allowed),
        "numa_nodes": set(&report.nodes),
        "lanes_in_use": report.lanes_in_use,
        "lanes_max": report.lanes_max,
        "counter_bytes": report.counter_bytes,
        "counter_bytes_per_lane": report.counter_bytes_per_lane,
        "self_tests": tests,
        "advice": advice(report, &[]),
    })
}

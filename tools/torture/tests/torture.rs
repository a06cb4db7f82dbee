//! The program's exit statuses, text and JSON, in each tier.

use std::collections::BTreeSet;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use thiscpu_test_support::text;

fn torture(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thiscpu-torture"));
    command.args(args).stdin(Stdio::null());
    command
}

/// Returns whether this machine has `tier`.
fn has(tier: &str) -> bool {
    let mut brief = torture(&["--seconds", "0.01", "--threads", "1"]);
    brief.env("THISCPU_TIER", tier).output().unwrap().status.code() != Some(2)
}

fn json(tier: &str, args: &[&str]) -> Value {
    let output = torture(args).arg("--json").env("THISCPU_TIER", tier).output().unwrap();
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "no progress bar without a terminal");
    serde_json::from_str(&said).unwrap()
}

/// Runs a second in `tier`, and checks the JSON report.
fn check_tier(tier: &str) {
    if !has(tier) {
        return;
    }
    let report = json(tier, &["--seconds", "1", "--seed", "0x2a"]);
    assert_eq!(report["tier"], tier);
    assert_eq!(report["seed"], 42);
    assert_eq!(report["interrupted"], false);
    assert!(report["seconds"].as_f64().unwrap() >= 1.0, "{report}");
    assert_eq!(report["failures"].as_array().unwrap().len(), 0, "{report}");
    assert!(report["threads"].as_u64().unwrap() > 0, "{report}");
    // Their values depend on the machine.
    let counts = ["exact_answers", "signals", "forks", "short_lived_threads", "moves", "probes"];
    for key in counts.iter().chain(&["aborts", "migrations", "faults", "major_faults"]) {
        assert!(report[key].is_u64(), "{key}: {report}");
    }
    let ops = report["ops"].as_object().unwrap();
    let names: BTreeSet<&str> = ops.keys().map(String::as_str).collect();
    assert!(names.is_superset(&BTreeSet::from(["counter", "counters", "words_u8", "stacks"])));
    assert!(ops.values().any(|count| count.as_u64().unwrap() > 0), "{report}");
}

#[test]
fn rseq_cid_tier_passes() {
    check_tier("rseq-cid");
}

#[test]
fn rseq_cpu_tier_passes() {
    check_tier("rseq-cpu");
}

#[test]
fn atomic_tier_passes() {
    check_tier("atomic");
}

#[test]
fn one_thread_is_enough() {
    let report = json("", &["--seconds", "0.2", "--threads", "1"]);
    assert_eq!(report["threads"], 1);
}

#[test]
fn invalid_options_are_refused_with_a_reason() {
    let cases: [(&[&str], &str); 8] = [
        (&["--seconds", "0"], "more than 0"),
        (&["--seconds", "-1"], "more than 0"),
        (&["--seconds", "NaN"], "more than 0"),
        (&["--threads", "0"], "1..=4096"),
        (&["--threads", "4097"], "1..=4096"),
        (&["--seed", "-1"], "64 bits"),
        (&["--seed", "0x"], "64 bits"),
        (&["counter"], "counter"),
    ];
    for (args, hint) in cases {
        let output = torture(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty(), "{args:?}");
        assert!(text(&output.stderr).contains(hint), "{args:?}: {}", text(&output.stderr));
    }
    let output = torture(&[]).env("THISCPU_TIER", "percpu").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("rseq-cid"));
}

#[test]
fn failed_writes_end_with_1_and_the_reason() {
    let brief = ["--seconds", "0.1", "--threads", "1"];
    for args in [&brief[..], &["--seconds", "0.1", "--threads", "1", "--json"], &["--help"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = torture(args).stdout(full).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", text(&output.stderr));
        let reason = "cannot write to standard output: No space left on device";
        assert!(text(&output.stderr).contains(reason), "{args:?}: {}", text(&output.stderr));
    }
}

#[test]
fn interrupted_run_still_runs_the_final_check() {
    let mut child = torture(&["--seconds", "600"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The signal handler is installed before the threads start.
    let tasks = format!("/proc/{}/task", child.id());
    while std::fs::read_dir(&tasks).is_ok_and(|tasks| tasks.count() < 4) {
        assert!(child.try_wait().unwrap().is_none(), "it ended without a signal");
        std::thread::yield_now();
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    assert_eq!(status.code(), Some(0), "{}", text(&stderr));
    for part in ["ended early, as requested", "every unit is accounted for"] {
        assert!(text(&stdout).contains(part), "{}", text(&stdout));
    }
}

fn server(args: &[&str]) -> Output {
    torture(&["server"]).args(args).output().unwrap()
}

#[test]
fn server_accounts_for_every_block() {
    let output = server(&["--seconds", "4", "--seed", "0x2a"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "seed 42\n");
    assert!(said.contains("every block is accounted for"), "{said}");
}

#[test]
fn invalid_options_of_server_are_refused() {
    for args in [&["--seconds", "0"][..], &["--seed", "x"], &["--threads", "2"], &["peak"]] {
        assert_eq!(server(args).status.code(), Some(2), "{args:?}");
    }
}

fn segment(args: &[&str]) -> Command {
    let mut command = torture(&["segment"]);
    command.args(args);
    command
}

/// Runs some kills in `tier`, and checks the report.
fn check_segment(tier: &str, options: &[&str]) {
    if !has(tier) {
        return;
    }
    let output = segment(&["--kills", "60", "--seconds", "60", "--seed", "0x2a"])
        .args(options)
        .env("THISCPU_TIER", tier)
        .output()
        .unwrap();
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "seed 42\n");
    let count = |label: &str| -> u64 {
        let line = said.lines().find(|line| line.starts_with(label)).expect("a line of the report");
        line[label.len()..].trim().parse().expect("a number")
    };
    assert!(said.contains("every unit is accounted for"), "{said}");
    assert!(count("kills") >= 60 && count("operations") > 0 && count("rounds") > 0, "{said}");
}

#[test]
fn killed_processes_of_rseq_cid_lose_nothing() {
    check_segment("rseq-cid", &[]);
}

#[test]
fn killed_processes_of_rseq_cpu_lose_nothing() {
    check_segment("rseq-cpu", &[]);
}

#[test]
fn killed_processes_of_atomic_lose_nothing() {
    check_segment("atomic", &[]);
}

#[test]
fn killed_processes_on_separate_cpus_lose_nothing() {
    check_segment("rseq-cid", &["--split-cpus"]);
}

#[test]
fn invalid_options_of_segment_are_refused() {
    for args in [&["--seconds", "0"][..], &["--processes", "9"], &["--kills", "x"], &["add"]] {
        assert_eq!(segment(args).output().unwrap().status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn damaged_files_of_segments_do_no_harm() {
    let output =
        torture(&["segment-files"]).args(["--images", "3000", "--seed", "0x2a"]).output().unwrap();
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "seed 42\n");
    let words: Vec<_> = said.split_whitespace().collect();
    assert!(said.contains("each call ended with a value or an error"), "{said}");
    assert!(words.windows(2).any(|it| it == ["images", "3000"]), "{said}");
}

#[test]
fn invalid_options_of_segment_files_are_refused() {
    for args in [&["--images", "0"][..], &["--processes", "65"], &["--seconds", "1"], &["x"]] {
        let status = torture(&["segment-files"]).args(args).output().unwrap().status;
        assert_eq!(status.code(), Some(2), "{args:?}");
    }
}

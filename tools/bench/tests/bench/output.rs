//! How a run ends: failed writes, closed pipes, Ctrl-C; and its progress on a terminal.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use thiscpu_test_support::terminal;

use serde_json::json;

use crate::{TINY, alone, bench, parse, program, results, spawn, texts};

#[test]
fn failed_writes_end_with_1_and_the_reason() {
    let _turn = alone();
    let add = ["bench", "add", "--threads", "1", "--contender", "atomic"];
    for args in [
        vec!["bench", "--list"],
        [&add[..], &TINY].concat(),
        [&add[..], &TINY, &["--json"]].concat(),
        vec!["--help"],
        vec!["--version"],
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = program().args(&args).stdout(full).output().unwrap();
        let (_, errors) = texts(&output, 1, &format!("{args:?}"));
        let reason = "error: cannot write to standard output: No space left on device";
        assert!(errors.contains(reason), "{args:?}: {errors}");
    }
}

#[test]
fn closed_pipe_is_no_failure() {
    let _turn = alone();
    let mut child = spawn(bench(&["add", "commit", "--threads", "1", "--json"]).args(TINY));
    let mut first = [0];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut first).unwrap();
    drop(stdout);
    let (_, errors) = texts(&child.wait_with_output().unwrap(), 0, "the run");
    assert_eq!(errors, "");
}

/// Kills a program after two minutes, so that its test fails instead of hanging.
fn kill_after_two_minutes(child: &Child) {
    let pid = child.id().to_string();
    thread::spawn(move || {
        thread::sleep(Duration::from_secs(120));
        let _ = Command::new("kill").args(["-KILL", &pid]).status();
    });
}

fn interrupt(child: &Child, signal: &str) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
}

#[test]
fn interrupted_run_prints_and_saves_what_was_measured() {
    let _turn = alone();
    let report = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("partial");
    let _ = fs::remove_dir_all(&report);
    let mut command = bench(&["add", "--threads", "1", "--contender", "atomic,thiscpu"]);
    command.args(["--seconds", "0.4", "--rounds", "100000", "--report"]).arg(&report);
    let child = spawn(&mut command);
    kill_after_two_minutes(&child);
    thread::sleep(Duration::from_millis(1500));
    interrupt(&child, "-INT");
    let (text, errors) = texts(&child.wait_with_output().unwrap(), 130, "the run");
    let notice = "interrupted after 0 of 1 cases: these figures are partial";
    assert!(errors.contains(notice), "{errors}");
    assert!(text.contains("add, 1 thread (partial)") && text.contains("| atomic "), "{text}");
    let results = results(&report);
    assert_eq!((&results["is_complete"], &results["cases_done"]), (&false.into(), &0.into()));
    assert_eq!(results["rows"][0]["partial"], true);
    let csv = fs::read_to_string(report.join("results.csv")).unwrap();
    assert!(csv.lines().nth(1).is_some_and(|row| row.ends_with(",true")), "{csv}");
    let rounds = results["rows"][0]["rounds"].as_u64().unwrap();
    assert!((1..10).contains(&rounds), "{results}");
    let page = fs::read_to_string(report.join("index.html")).unwrap();
    assert!(page.contains("These figures are partial: 0 of 1 cases are complete"), "{page}");
}

#[test]
fn interrupted_children_leave_the_earlier_cases() {
    let _turn = alone();
    let mut command = bench(&["add", "alloc", "--threads", "1", "--json", "--rounds", "1"]);
    command.args(["--contender", "atomic,glibc", "--seconds", "2"]);
    let mut child = spawn(&mut command);
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    while !text.lines().last().unwrap_or_default().contains(r#""workload":"add""#) {
        assert!(reader.read_line(&mut text).unwrap() > 0, "{text}");
    }
    // The case after that line is under way.
    thread::sleep(Duration::from_millis(200));
    interrupt(&child, "-TERM");
    reader.read_to_string(&mut text).unwrap();
    let (_, errors) = texts(&child.wait_with_output().unwrap(), 143, "the run");
    let last = parse(&text).pop().unwrap();
    assert_eq!(last, json!({ "partial": true, "cases_done": 1, "cases": 29 }));
    assert!(!errors.contains("error"), "{errors}");
    assert!(!text.contains(r#""workload":"alloc""#), "{text}");
}

#[test]
fn long_audit_announces_its_time_and_ends_with_the_audit_so_far() {
    for (workload, case) in [("budget", "near"), ("ledger", "audit")] {
        let _turn = alone();
        let mut command = bench(&[workload, "--case", case, "--contender", "thiscpu"]);
        command.args(["--threads", "2", "--audit", "1000000000000", "--json"]).args(TINY);
        let mut child = spawn(&mut command);
        kill_after_two_minutes(&child);
        let mut reader = BufReader::new(child.stderr.take().unwrap());
        let mut announced = String::new();
        reader.read_line(&mut announced).unwrap();
        let beginning = "auditing 1,000,000,000,000 calls takes about";
        assert!(announced.starts_with(beginning), "{announced}");
        assert!(announced.contains("in all for 1 measurements"), "{announced}");
        interrupt(&child, "-INT");
        let (text, _) = texts(&child.wait_with_output().unwrap(), 130, &announced);
        let lines = parse(&text);
        let audited = lines.iter().find(|line| line["metric"] == "audited").expect(&text);
        assert!(audited["median"].as_f64().unwrap() > 0.0, "{audited}");
        assert_eq!(audited["partial"], true);
    }
}

#[test]
fn progress_fits_into_40_columns() {
    let _turn = alone();
    let (ours, theirs) = terminal::open(40);
    let mut child = bench(&["memory", "--case", "accounts", "--contender", "thiscpu"])
        .args(TINY)
        .stdout(Stdio::null())
        .stderr(theirs)
        .env("TERM", "xterm")
        .spawn()
        .unwrap();
    let plain = terminal::text(ours);
    assert!(child.wait().unwrap().success());
    assert!(plain.contains("memory accounts"), "{plain:?}");
    for line in plain.split(['\r', '\n']) {
        assert!(line.chars().count() <= 40, "{line:?} is too wide");
    }
}

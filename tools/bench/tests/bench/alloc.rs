//! The workload `alloc`, each slice of which is a process of its own.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    thread,
    time::Duration,
};

use crate::{
    TINY, alone, assert_all_have, bench, contenders, lines, of_case, program, run, spawn, texts,
};

/// The contenders of every build.
const ALWAYS: [&str; 6] =
    ["glibc", "slub-lock", "slub-tid", "thiscpu-cache", "thiscpu-malloc", "thiscpu-hardened"];

/// The contenders of builds with the feature `other-allocators` only.
const OTHERS: [&str; 4] = ["mimalloc", "jemalloc", "snmalloc", "rpmalloc"];

const WITH_OTHERS: &str =
    "`cargo run --release -p thiscpu-bench --features other-allocators -- bench alloc`";

#[test]
fn alloc_times_all_contenders_and_measures_resident_memory() {
    let lines = lines(&["alloc", "--threads", "2"]);
    let sizes = (3..15).map(|power| format!("pair-{}", 1 << power));
    let others = ["burst-64", "burst-1024", "remote-64", "churn-64"].map(str::to_owned);
    for case in sizes.chain(others) {
        assert_all_have(&lines, &case, &["time_per_op"], &ALWAYS);
        let timed = contenders(&lines, &case, "time_per_op");
        let is_right = |name| timed.contains(name) == cfg!(feature = "other-allocators");
        assert!(OTHERS.iter().all(is_right), "{case}: {timed:?}");
        let times = of_case(&lines, &case, "time_per_op", "median");
        assert!(times.iter().all(|time| time.as_f64() > Some(0.0)), "{case}: {times:?}");
        for ratio in ["cache_ratio", "malloc_ratio"] {
            let compared = contenders(&lines, &case, ratio);
            assert_eq!(compared.len(), timed.len() - 1, "{case}: all but the one in the ratio");
        }
        let hardened = contenders(&lines, &case, "hardened_ratio");
        assert!(hardened.iter().all(|name| *name == "thiscpu-malloc"), "{case}: {hardened:?}");
        assert!(!hardened.is_empty(), "{case}");
    }
    // Blocks of mixed sizes; a thread alone keeps two of at least 5 MiB.
    for case in ["mixed-small", "simulated", "large-random"] {
        assert_all_have(&lines, case, &["time_per_op"], &["glibc", "thiscpu-malloc"]);
    }
    let peaks = of_case(&lines, "large-random", "peak_bytes", "median");
    assert!(peaks.iter().all(|bytes| bytes.as_f64() > Some(1e7)), "{peaks:?}");
    assert!(!peaks.is_empty());
    let resident = |metric, key| of_case(&lines, "resident-64", metric, key);
    assert_all_have(&lines, "resident-64", &["resident_bytes"], &["glibc", "thiscpu-malloc"]);
    let names = resident("resident_bytes", "contender");
    assert!(resident("resident_bytes", "threads").iter().all(|count| **count == 64));
    assert_eq!(resident("malloc_ratio", "contender").len(), names.len() - 1);
    // All objects together begin in more pages than this.
    let bytes = resident("resident_bytes", "median");
    assert!(bytes.iter().all(|bytes| bytes.as_f64() > Some(1e6)), "{bytes:?}");
}

#[test]
fn text_begins_with_versions_and_ends_with_a_summary() {
    let turn = alone();
    let case = ["alloc", "--case", "pair-64", "--threads", "1"];
    let (text, _) = run(bench(&case).args(TINY), 0);
    drop(turn);
    assert!(text.contains("\nVersions: glibc "), "{text}");
    assert_eq!(text.contains(", mimalloc 3."), cfg!(feature = "other-allocators"), "{text}");
    let (_, summary) = text.split_once("alloc, all cases: ").unwrap();
    let rows = summary.lines().filter(|line| line.starts_with("| pair-64, 1 thread"));
    let row: Vec<_> = rows.collect::<Vec<_>>()[1].split('|').map(str::trim).collect();
    assert!(["glibc"].iter().chain(&OTHERS).any(|other| *other == row[2]), "{row:?}");
    let is_ratio = |cell: &&str| cell.parse::<f64>().is_ok_and(|ratio| ratio > 0.0);
    assert!(row[4..8].iter().all(is_ratio), "{row:?}");
    let last = text.lines().last().unwrap();
    let headline = "of 1 comparisons, a design of thiscpu has the smallest median.";
    assert!(last.ends_with(headline), "{last}");
}

#[test]
fn missing_allocators_are_reported_with_build_command() {
    if cfg!(feature = "other-allocators") {
        return;
    }
    for name in OTHERS {
        let (_, errors) = run(bench(&["alloc", "--contender", name]).args(TINY), 2);
        assert!(errors.contains(WITH_OTHERS), "{errors}");
    }
    // A reader that goes away after the heading ends the run.
    let heading_of = |workload| {
        let _turn = alone();
        let mut child = spawn(bench(&[workload, "--threads", "1"]).args(TINY));
        let mut text = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        while !text.ends_with("\n\n") {
            assert!(stdout.read_line(&mut text).unwrap() > 0, "{text}");
        }
        drop(stdout);
        assert!(child.wait().unwrap().success());
        text
    };
    assert_eq!(heading_of("alloc").matches(WITH_OTHERS).count(), 1);
    assert!(!heading_of("add").contains("other-allocators"), "they cannot run add");
}

#[test]
fn child_refuses_impossible_specs() {
    let length = r#""length":{"secs":0,"nanos":5}"#;
    let spec = format!(r#"{{"case":"pair-64","contender":"atomic","threads":1,{length}}}"#);
    let (text, _) = run(program().args(["alloc-child", &spec]), 2);
    assert_eq!(text, "");
}

#[test]
fn child_that_dies_fails_the_run_with_the_reason() {
    let _turn = alone();
    let mut command = bench(&["alloc", "--contender", "glibc", "--threads", "1", "--json"]);
    let parent = spawn(command.args(["--seconds", "600", "--rounds", "1"]));
    let child = loop {
        match child_of(parent.id()) {
            Some(child) => break child,
            None => thread::sleep(Duration::from_millis(1)),
        }
    };
    // SAFETY: kill has no preconditions. The child exists until its parent has waited for it.
    assert_eq!(unsafe { libc::kill(child, libc::SIGKILL) }, 0);
    let (_, text) = texts(&parent.wait_with_output().unwrap(), 1, "the parent");
    let reason = "alloc pair-8, 1 thread: glibc failed: child that measures {\"case\":\"pair-8\"";
    assert!(text.contains(reason), "{text}");
    assert!(text.contains("SIGKILL"), "{text}");
}

/// Returns a process that `parent` has started, if there is one.
fn child_of(parent: u32) -> Option<i32> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(|process: &i32| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // The name is in brackets and may contain anything; the state and the parent follow it.
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        after_name.split_whitespace().nth(1) == Some(&parent.to_string())
    })
}

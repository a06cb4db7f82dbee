//! The workload `object`, each slice of which is a process of its own.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    thread,
    time::Duration,
};

use super::*;

/// Who is there in every build.
const ALWAYS: [&str; 6] =
    ["glibc", "slub-lock", "slub-tid", "thiscpu-cache", "thiscpu-malloc", "thiscpu-hardened"];

/// Who is there only in a build with the feature of that name.
const OTHER_ALLOCATORS: [&str; 4] = ["mimalloc", "jemalloc", "snmalloc", "rpmalloc"];

/// The command that has them.
const WITH_PEERS: &str =
    "`cargo run --release -p thiscpu-bench --features other-allocators -- bench alloc`";

#[test]
fn object_times_everyone_and_sees_what_stays_resident() {
    let lines = lines(&["alloc", "--threads", "2"]);
    let sizes = (3..15).map(|power| format!("pair-{}", 1 << power));
    let others = ["burst-64", "burst-1024", "remote-64", "churn-64"].map(str::to_owned);
    for case in sizes.chain(others) {
        let timed = those(&lines, &case, "time_per_op", "contender");
        assert!(ALWAYS.iter().all(|name| timed.iter().any(|known| *known == name)), "{case}");
        let has_peer = |name: &str| timed.iter().any(|known| **known == name);
        assert!(
            OTHER_ALLOCATORS
                .iter()
                .all(|name| has_peer(name) == cfg!(feature = "other-allocators")),
            "{case}"
        );
        let times = those(&lines, &case, "time_per_op", "median");
        assert!(times.iter().all(|time| time.as_f64() > Some(0.0)), "{case}: {times:?}");
        for ratio in ["cache_ratio", "malloc_ratio"] {
            let compared = those(&lines, &case, ratio, "contender");
            assert_eq!(compared.len(), timed.len() - 1, "{case}: all but whose ratio it is");
        }
        let hardened = those(&lines, &case, "hardened_ratio", "contender");
        assert!(hardened.iter().all(|name| **name == "thiscpu-malloc"), "{case}: {hardened:?}");
        assert!(!hardened.is_empty(), "{case}");
    }
    let idle = those(&lines, "resident-64", "resident_bytes", "contender");
    assert!(["glibc", "thiscpu-malloc"].iter().all(|name| idle.iter().any(|known| *known == name)));
    assert!(
        those(&lines, "resident-64", "resident_bytes", "threads").iter().all(|count| **count == 64)
    );
    assert_eq!(those(&lines, "resident-64", "malloc_ratio", "contender").len(), idle.len() - 1);
    // All objects together begin in more pages than this.
    let bytes = those(&lines, "resident-64", "resident_bytes", "median");
    assert!(bytes.iter().all(|bytes| bytes.as_f64() > Some(1e6)), "{bytes:?}");
}

#[test]
fn tables_begin_with_versions_and_end_with_what_all_cases_come_to() {
    let turn = alone();
    let case = ["alloc", "--case", "pair-64", "--threads", "1"];
    let output = bench(&case).args(TINY).output().unwrap();
    drop(turn);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\nVersions: glibc "), "{text}");
    assert_eq!(text.contains(", mimalloc 3."), cfg!(feature = "other-allocators"), "{text}");
    let (_, summary) = text.split_once("alloc, all cases: ").unwrap();
    let row: Vec<_> = summary.lines().last().unwrap().split('|').map(str::trim).collect();
    assert_eq!(row[1], "pair-64, 1 thread");
    assert!(["glibc"].iter().chain(&OTHER_ALLOCATORS).any(|other| *other == row[2]), "{row:?}");
    let is_ratio = |cell: &&str| cell.parse::<f64>().is_ok_and(|ratio| ratio > 0.0);
    assert!(row[4..8].iter().all(is_ratio), "{row:?}");
}

#[test]
fn peers_that_are_not_built_in_are_missed_with_the_command_that_has_them() {
    if cfg!(feature = "other-allocators") {
        return;
    }
    for name in OTHER_ALLOCATORS {
        let output = bench(&["alloc", "--contender", name]).args(TINY).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert!(stderr(&output).contains(WITH_PEERS), "{}", stderr(&output));
    }
    // A reader that goes away after the heading ends the run.
    let heading_of = |workload| {
        let _turn = alone();
        let mut child = bench(&[workload, "--threads", "1"])
            .args(TINY)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut text = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        while !text.ends_with("\n\n") {
            assert!(stdout.read_line(&mut text).unwrap() > 0, "{text}");
        }
        drop(stdout);
        assert!(child.wait().unwrap().success());
        text
    };
    assert_eq!(heading_of("alloc").matches(WITH_PEERS).count(), 1);
    assert!(!heading_of("add").contains("others"), "who takes no part is not missed");
}

#[test]
fn a_child_refuses_an_order_that_nobody_can_follow() {
    for order in ["pair-64:atomic:1:5", "pair-64:glibc:1", "resident-64:slub-lock:64:5"] {
        let output = bench_program().args(["alloc-child", order]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{order}");
        assert!(output.stdout.is_empty(), "{order}");
    }
}

#[test]
fn a_child_that_dies_fails_the_run_with_the_reason() {
    let _turn = alone();
    let parent = bench(&["alloc", "--contender", "glibc", "--threads", "1", "--json"])
        .args(["--seconds", "600", "--rounds", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let child = loop {
        match child_of(parent.id()) {
            Some(child) => break child,
            None => thread::sleep(Duration::from_millis(1)),
        }
    };
    // SAFETY: kill has no preconditions; the child is there until its parent, which waits for it, hears of this.
    assert_eq!(unsafe { libc::kill(child, libc::SIGKILL) }, 0);
    let output = parent.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let text = stderr(&output);
    assert!(text.contains("pair-8, 1 thread: glibc failed"), "{text}");
    assert!(text.contains("the process that measures pair-8:glibc:1:600000000000"), "{text}");
    assert!(text.contains("SIGKILL"), "{text}");
}

/// A process that `parent` has started, if there is one.
fn child_of(parent: u32) -> Option<i32> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(|process: &i32| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // After the name, which is in brackets and may have anything in it: the state, and the parent.
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        after_name.split_whitespace().nth(1) == Some(&parent.to_string())
    })
}

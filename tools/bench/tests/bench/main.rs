//! `thiscpu-bench` as its users see it: exit statuses, lines of JSON, tables.

mod alloc;
mod output;
mod report;
mod requests;

use std::{
    collections::BTreeSet,
    process::{Command, Output, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde_json::Value;

/// The shortest run that still measures something.
const TINY: [&str; 4] = ["--seconds", "0.01", "--rounds", "1"];

const CONTENDERS: [&str; 6] =
    ["atomic", "spinlock-fold", "dumazet", "li-gate", "striped", "thiscpu"];

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_thiscpu-bench"))
}

fn bench(args: &[&str]) -> Command {
    let mut command = program();
    command.arg("bench").args(args).stdin(Stdio::null());
    command
}

/// Waits until no other test of this file measures.
///
/// Each uses more threads than there are CPUs. All at once, some thread would get no CPU in so
/// short a slice.
fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a tiny bench and returns its lines, which must have exactly the documented keys.
fn lines(args: &[&str]) -> Vec<Value> {
    const KEYS: [&str; 10] = [
        "workload",
        "case",
        "contender",
        "threads",
        "metric",
        "unit",
        "median",
        "min",
        "max",
        "rounds",
    ];
    let turn = alone();
    let output = bench(args).args(TINY).arg("--json").output().unwrap();
    drop(turn);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for line in &lines {
        let keys: BTreeSet<&str> = line.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, BTreeSet::from(KEYS), "{line}");
        for number in ["threads", "median", "min", "max", "rounds"] {
            assert!(line[number].is_number(), "{number} of {line}");
        }
    }
    lines
}

/// Returns the values of `key` in the lines of a case and a metric.
fn of_case<'a>(lines: &'a [Value], case: &str, metric: &str, key: &str) -> Vec<&'a Value> {
    lines
        .iter()
        .filter(|line| line["case"] == case && line["metric"] == metric)
        .map(|line| &line[key])
        .collect()
}

fn assert_all_have(lines: &[Value], case: &str, metric: &str) {
    let names = of_case(lines, case, metric, "contender");
    for name in CONTENDERS {
        assert!(names.iter().any(|known| *known == name), "{name} has no {metric}");
    }
}

#[test]
fn add_times_all_contenders() {
    let lines = lines(&["add", "--threads", "1,2"]);
    assert_all_have(&lines, "", "time_per_op");
    let threads = of_case(&lines, "", "time_per_op", "threads");
    assert!([1, 2].iter().all(|count| threads.iter().any(|known| *known == count)));
    let ratios = of_case(&lines, "", "thiscpu_ratio", "contender");
    assert!(ratios.iter().all(|name| *name != "thiscpu"));
    assert!(of_case(&lines, "", "time_per_op", "unit").iter().all(|unit| *unit == "ns"));
}

#[test]
fn commit_has_two_cases_and_a_baseline() {
    let lines = lines(&["commit", "--threads", "2"]);
    assert_all_have(&lines, "accounting", "time_per_op");
    assert_all_have(&lines, "syscalls", "time_per_op");
    assert_all_have(&lines, "syscalls", "ratio_to_none");
    let is_baseline = |name: &&Value| **name == "none";
    assert!(of_case(&lines, "syscalls", "time_per_op", "contender").iter().any(is_baseline));
    assert!(!of_case(&lines, "accounting", "time_per_op", "contender").iter().any(is_baseline));
}

#[test]
fn sum_counts_errors_of_all_contenders() {
    let lines = lines(&["sum"]);
    for metric in ["sums", "wrong_sums", "max_error", "time_per_sum", "time_per_sum_p999"] {
        assert_all_have(&lines, "token", metric);
    }
    assert_all_have(&lines, "slowdown", "adders_slowdown");
    for line in &lines {
        if line["metric"] == "wrong_sums"
            && ["atomic", "thiscpu"].contains(&line["contender"].as_str().unwrap())
        {
            assert_eq!(line["max"], 0.0, "{line}");
        }
    }
}

#[test]
fn threshold_times_all_contenders() {
    assert_all_have(&lines(&["threshold", "--threads", "2"]), "", "time_per_op");
}

#[test]
fn budget_audits_all_contenders() {
    let lines = lines(&["budget", "--threads", "2", "--audit", "5000"]);
    let all_have = |case: &str, metric: &str| {
        let names = of_case(&lines, case, metric, "contender");
        ["atomic-cas", "compare-twice", "compare-once", "limited-add", "semaphore", "thiscpu"]
            .iter()
            .all(|name| names.iter().any(|known| *known == name))
    };
    let cases = ["far", "near", "oscillate", "exhausted"];
    assert!(cases.iter().all(|case| all_have(case, "time_per_op")));
    for case in &cases[1..] {
        assert!(all_have(case, "over_grants") && all_have(case, "wrong_refusals"), "{case}");
        let audited = of_case(&lines, case, "audited", "median");
        assert!(audited.iter().all(|calls| calls.as_f64() >= Some(5000.0)), "{case}: {audited:?}");
    }
    let recalls = of_case(&lines, "oscillate", "recalls_per_second", "contender");
    assert_eq!(recalls, ["thiscpu"]);
}

#[test]
fn fault_has_two_cases_and_a_baseline() {
    let lines = lines(&["fault", "--threads", "2"]);
    let timed = |case| of_case(&lines, case, "time_per_op", "contender");
    let ledgers = ["atomic", "kamezawa", "per-thread-64", "memcg-stock", "thiscpu"];
    assert_eq!(timed("accounting"), ledgers);
    assert_eq!(timed("syscalls")[0], "none");
    assert_eq!(timed("syscalls")[1..], ledgers);
    assert_eq!(of_case(&lines, "syscalls", "ratio_to_none", "contender"), ledgers);
}

#[test]
fn ledger_times_all_contenders_and_reports_hit_rates() {
    let lines = lines(&["ledger"]);
    for case in ["single", "working-set-8", "working-set-64", "working-set-512", "zipf"] {
        let timed = of_case(&lines, case, "time_per_op", "contender");
        let cached = of_case(&lines, case, "hit_rate", "contender");
        for name in ["kamezawa", "per-thread-64", "memcg-stock"] {
            let has_it = |names: &[&Value]| names.iter().any(|known| **known == name);
            assert!(has_it(&timed) && has_it(&cached), "{case}: {name}");
        }
        assert!(timed.iter().any(|name| *name == "atomic"), "{case}");
        let rates = of_case(&lines, case, "hit_rate", "median");
        let is_percent = |rate: &&Value| (0.0..=100.0).contains(&rate.as_f64().unwrap());
        assert!(rates.iter().all(is_percent), "{case}: {rates:?}");
    }
}

#[test]
fn ledger_audit_accounts_for_every_unit() {
    let lines = lines(&["ledger", "--contender", "thiscpu", "--threads", "2", "--audit", "50000"]);
    let figure = |metric| match of_case(&lines, "audit", metric, "median")[..] {
        [value] => value.as_f64().unwrap(),
        ref values => panic!("{metric}: {values:?}"),
    };
    assert_eq!((figure("lost_units"), figure("doubled_units")), (0.0, 0.0));
    assert!(figure("audited") >= 50_000.0 && figure("forks") >= 1.0);
    assert_eq!(figure("opened"), figure("closed"));
}

#[test]
fn metrics_are_incremented_and_scraped() {
    let lines = lines(&["metrics"]);
    let registries =
        ["metrics-exporter-prometheus", "prometheus-client", "thiscpu", "thiscpu-facade"];
    for threads in [1, 2] {
        let timed = lines.iter().filter(|line| {
            line["case"] == "increment"
                && line["metric"] == "time_per_op"
                && line["threads"] == threads
        });
        assert!(timed.map(|line| &line["contender"]).eq(registries), "{threads}");
    }
    assert_eq!(of_case(&lines, "scrape", "time_per_scrape", "contender"), registries);
    let series = of_case(&lines, "scrape", "series", "median");
    assert!(series.iter().all(|count| **count == 1000.0), "{series:?}");
    let compared = of_case(&lines, "scrape", "thiscpu_ratio", "contender");
    assert_eq!(compared, [registries[0], registries[1], registries[3]]);
}

#[test]
fn memory_is_measured_in_children() {
    let lines = lines(&["memory", "--contender", "thiscpu,striped", "--contender", "atomic"]);
    for metric in ["counters", "resident", "resident_bytes_per_counter", "time_per_create"] {
        assert_eq!(of_case(&lines, "", metric, "contender").len(), 3, "{metric}");
    }
    for metric in ["accounts", "resident", "resident_bytes_per_account", "time_per_create"] {
        let names = of_case(&lines, "accounts", metric, "contender");
        assert_eq!(names, ["thiscpu", "atomic"], "{metric}");
    }
}

#[test]
fn text_begins_with_the_conditions() {
    let _turn = alone();
    let output =
        bench(&["add", "--threads", "1", "--contender", "atomic"]).args(TINY).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let text = stdout(&output);
    assert!(text.starts_with("tier "), "{text}");
    assert!(text.contains("1 round, 0.01 s a slice"), "{text}");
    assert!(text.contains("add, 1 thread") && text.contains("| atomic"), "{text}");
    assert_eq!(stderr(&output), "", "no progress bar without a terminal");
}

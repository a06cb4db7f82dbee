//! `thiscpu-bench` as its users see it: exit statuses, lines of JSON, tables.

mod alloc;
mod output;
mod report;
mod requests;
mod walk;

use std::{
    collections::BTreeSet,
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde_json::Value;

/// The shortest run that still measures something.
const TINY: [&str; 4] = ["--seconds", "0.01", "--rounds", "1"];

/// The keys of a line of JSON, and the columns of results.csv.
const COLUMNS: &str = "workload,case,contender,threads,metric,unit,median,min,max,rounds,partial";

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

/// Runs a command to its end, and returns its standard output and its standard error.
fn run(command: &mut Command, status: i32) -> (String, String) {
    let output = command.output().unwrap();
    texts(&output, status, &format!("{command:?}"))
}

/// Returns the texts of a program that must have ended with `status`.
fn texts(output: &Output, status: i32, what: &str) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(status), "{what}: {stderr}");
    (stdout, stderr)
}

/// Starts a command whose outputs are read as they come.
fn spawn(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn parse(lines: &str) -> Vec<Value> {
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn results(directory: &Path) -> Value {
    let text = std::fs::read_to_string(directory.join("results.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Runs a tiny bench and returns its lines, which must have exactly the documented keys.
fn lines(args: &[&str]) -> Vec<Value> {
    let turn = alone();
    let (text, _) = run(bench(args).args(TINY).arg("--json"), 0);
    drop(turn);
    let lines = parse(&text);
    for line in &lines {
        let keys: BTreeSet<&str> = line.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, COLUMNS.split(',').collect(), "{line}");
        for number in ["threads", "median", "min", "max", "rounds"] {
            assert!(line[number].is_number(), "{number} of {line}");
        }
        assert_eq!(line["partial"], false, "{line}");
    }
    lines
}

/// Returns the values of `key` in the lines of a case and a metric.
fn of_case<'a>(lines: &'a [Value], case: &str, metric: &str, key: &str) -> Vec<&'a Value> {
    let own = lines.iter().filter(|line| line["case"] == case && line["metric"] == metric);
    own.map(|line| &line[key]).collect()
}

/// Returns the contenders that have a metric in a case.
fn contenders<'a>(lines: &'a [Value], case: &str, metric: &str) -> Vec<&'a str> {
    let names = of_case(lines, case, metric, "contender");
    names.into_iter().map(|name| name.as_str().unwrap()).collect()
}

fn assert_all_have(lines: &[Value], case: &str, metrics: &[&str], all: &[&str]) {
    for metric in metrics {
        let names = contenders(lines, case, metric);
        for name in all {
            assert!(names.contains(name), "{case}: {name} has no {metric}");
        }
    }
}

#[test]
fn add_times_all_contenders() {
    let lines = lines(&["add", "--threads", "1,2"]);
    assert_all_have(&lines, "", &["time_per_op"], &CONTENDERS);
    let threads = of_case(&lines, "", "time_per_op", "threads");
    assert!([1, 2].iter().all(|count| threads.iter().any(|known| *known == count)));
    assert!(!contenders(&lines, "", "thiscpu_ratio").contains(&"thiscpu"));
    assert!(of_case(&lines, "", "time_per_op", "unit").iter().all(|unit| *unit == "ns"));
}

#[test]
fn commit_has_two_cases_and_a_baseline() {
    let lines = lines(&["commit", "--threads", "2"]);
    assert_all_have(&lines, "accounting", &["time_per_op"], &CONTENDERS);
    assert_all_have(&lines, "syscalls", &["time_per_op", "ratio_to_none"], &CONTENDERS);
    assert!(contenders(&lines, "syscalls", "time_per_op").contains(&"none"));
    assert!(!contenders(&lines, "accounting", "time_per_op").contains(&"none"));
}

#[test]
fn sum_counts_errors_of_all_contenders() {
    let lines = lines(&["sum"]);
    let metrics = ["sums", "wrong_sums", "max_error", "time_per_sum", "time_per_sum_p999"];
    assert_all_have(&lines, "token", &metrics, &CONTENDERS);
    assert_all_have(&lines, "slowdown", &["adders_slowdown"], &CONTENDERS);
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
    let lines = lines(&["threshold", "--threads", "2"]);
    assert_all_have(&lines, "", &["time_per_op"], &CONTENDERS);
}

#[test]
fn budget_audits_all_contenders() {
    let lines = lines(&["budget", "--threads", "2", "--audit", "5000"]);
    let all =
        ["atomic-cas", "compare-twice", "compare-once", "limited-add", "semaphore", "thiscpu"];
    assert_all_have(&lines, "far", &["time_per_op"], &all);
    for case in ["near", "oscillate", "exhausted"] {
        assert_all_have(&lines, case, &["time_per_op", "over_grants", "wrong_refusals"], &all);
        let audited = of_case(&lines, case, "audited", "median");
        assert!(audited.iter().all(|calls| calls.as_f64() >= Some(5000.0)), "{case}: {audited:?}");
    }
    assert_eq!(contenders(&lines, "oscillate", "recalls_per_second"), ["thiscpu"]);
}

#[test]
fn fault_has_two_cases_and_a_baseline() {
    let lines = lines(&["fault", "--threads", "2"]);
    let timed = |case| contenders(&lines, case, "time_per_op");
    let ledgers = ["atomic", "kamezawa", "per-thread-64", "memcg-stock", "thiscpu"];
    assert_eq!(timed("accounting"), ledgers);
    assert_eq!(timed("syscalls")[0], "none");
    assert_eq!(timed("syscalls")[1..], ledgers);
    assert_eq!(contenders(&lines, "syscalls", "ratio_to_none"), ledgers);
}

#[test]
fn ledger_times_all_contenders_and_reports_hit_rates() {
    let lines = lines(&["ledger"]);
    for case in ["single", "working-set-8", "working-set-64", "working-set-512", "zipf"] {
        let cached = ["kamezawa", "per-thread-64", "memcg-stock"];
        assert_all_have(&lines, case, &["hit_rate", "time_per_op"], &cached);
        assert_all_have(&lines, case, &["time_per_op"], &["atomic"]);
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
    let registries = [
        "metrics-exporter-prometheus",
        "prometheus-client",
        "thiscpu",
        "thiscpu-facade",
        "thiscpu-shared",
    ];
    for threads in [1, 2] {
        let timed = lines.iter().filter(|line| {
            line["case"] == "increment"
                && line["metric"] == "time_per_op"
                && line["threads"] == threads
        });
        assert!(timed.map(|line| &line["contender"]).eq(registries), "{threads}");
    }
    assert_eq!(contenders(&lines, "scrape", "time_per_scrape"), registries);
    let series = of_case(&lines, "scrape", "series", "median");
    assert!(series.iter().all(|count| **count == 1000.0), "{series:?}");
    let compared = contenders(&lines, "scrape", "thiscpu_ratio");
    assert_eq!(compared, [0, 1, 3, 4].map(|number| registries[number]));
}

#[test]
fn processes_share_counters() {
    let lines = lines(&["shared", "--threads", "1,3"]);
    let all =
        ["atomic", "uncontended", "robust-mutex", "sysv-semaphore", "thiscpu-local", "thiscpu"];
    assert_eq!(contenders(&lines, "add", "time_per_op"), all.repeat(2));
    assert_eq!(contenders(&lines, "add", "thiscpu_ratio"), all[..5].repeat(2));
    assert_eq!(contenders(&lines, "add-sums", "adders_slowdown").len(), 5);
    for case in ["sum-2", "sum-64", "attach"] {
        assert_eq!(contenders(&lines, case, "time_per_op"), ["thiscpu"]);
    }
}

#[test]
fn layers_are_compared_with_those_of_tower() {
    let lines = lines(&["tower", "--threads", "1,3"]);
    for case in ["limit-far", "limit-reached", "shed-far", "shed-reached"] {
        assert_eq!(contenders(&lines, case, "time_per_op"), ["tower", "thiscpu"].repeat(2));
        assert_eq!(contenders(&lines, case, "thiscpu_ratio"), ["tower"; 2]);
    }
}

#[test]
fn memory_is_measured_in_children() {
    let lines = lines(&["memory", "--contender", "thiscpu,striped", "--contender", "atomic"]);
    for metric in ["counters", "resident", "resident_bytes_per_counter", "time_per_create"] {
        assert_eq!(contenders(&lines, "", metric).len(), 3, "{metric}");
    }
    for metric in ["accounts", "resident", "resident_bytes_per_account", "time_per_create"] {
        assert_eq!(contenders(&lines, "accounts", metric), ["thiscpu", "atomic"], "{metric}");
    }
}

#[test]
fn text_begins_with_the_conditions() {
    let _turn = alone();
    let mut command = bench(&["add", "--threads", "1", "--contender", "atomic"]);
    let (text, errors) = run(command.args(TINY), 0);
    assert!(text.starts_with("tier "), "{text}");
    assert!(text.contains("1 round, 0.01 s a slice"), "{text}");
    assert!(text.contains("add, 1 thread") && text.contains("| atomic"), "{text}");
    assert_eq!(errors, "", "no progress bar without a terminal");
}

//! `thiscpu-bench bench` as its users see it: exit statuses, lines of JSON, tables.

use std::{
    collections::BTreeSet,
    io::Read as _,
    process::{Command, Output, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde_json::Value;

mod alloc;
mod report;
mod tier;

/// The shortest run that still measures something.
const TINY: [&str; 4] = ["--seconds", "0.01", "--rounds", "1"];

const CONTENDERS: [&str; 6] =
    ["atomic", "spinlock-fold", "dumazet", "li-gate", "striped", "thiscpu"];

fn bench_program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_thiscpu-bench"))
}

fn bench(args: &[&str]) -> Command {
    let mut command = bench_program();
    command.arg("bench").args(args).stdin(Stdio::null());
    command
}

/// Waits until no other test of this file measures. Each measures with more threads than there are CPUs; all at
/// once, some thread would get no CPU in a slice as short as these.
fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a tiny bench and returns its lines, each of which must be an object with exactly the keys
/// that programs are told to expect.
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

/// The values of `key` in those lines that belong to the case and the metric.
fn those<'a>(lines: &'a [Value], case: &str, metric: &str, key: &str) -> Vec<&'a Value> {
    lines
        .iter()
        .filter(|line| line["case"] == case && line["metric"] == metric)
        .map(|line| &line[key])
        .collect()
}

fn assert_everyone_has(lines: &[Value], case: &str, metric: &str) {
    let names = those(lines, case, metric, "contender");
    for name in CONTENDERS {
        assert!(names.iter().any(|known| *known == name), "{name} has no {metric}");
    }
}

#[test]
fn bad_input_runs_nothing_and_says_what_exists() {
    let cases: [(&[&str], &str); 20] = [
        (&["adds"], "add, commit, sum, threshold, memory, budget, fault, ledger, metrics, alloc"),
        (
            &["--contender", "mutex"],
            "atomic, spinlock-fold, dumazet, li-gate, striped, section, atomic-cas, compare-twice, \
             compare-once, limited-add, semaphore, kamezawa, per-thread-64, memcg-stock, glibc, \
             mimalloc, jemalloc, snmalloc, rpmalloc, slub-lock, slub-tid, metrics-exporter-prometheus, \
             prometheus-client, thiscpu, thiscpu-facade, thiscpu-cache, thiscpu-malloc, \
             thiscpu-hardened",
        ),
        (&["--contender", "none"], "thiscpu"),
        (&["--threads", "0"], "from 1 to 4096"),
        (&["--threads", "4097"], "from 1 to 4096"),
        (&["--threads", "1,,2"], "from 1 to 4096"),
        (&["--threads", "99999999999999999999"], "from 1 to 4096"),
        (&["--rounds", "0"], "0"),
        (&["--rounds", "-1"], "-1"),
        (&["--seconds", "0"], "greater than 0"),
        (&["--seconds", "-1"], "greater than 0"),
        (&["--seconds", "NaN"], "greater than 0"),
        (&["memory", "--contender", "dumazet"], "atomic, striped, thiscpu"),
        (
            &["budget", "--contender", "dumazet"],
            "atomic-cas, compare-twice, compare-once, limited-add, semaphore, thiscpu",
        ),
        (&["budget", "--audit", "some"], "invalid digit"),
        (
            &["ledger", "--contender", "dumazet"],
            "atomic, kamezawa, per-thread-64, memcg-stock, thiscpu",
        ),
        (
            &["alloc", "--contender", "thiscpu"],
            "only glibc, mimalloc, jemalloc, snmalloc, rpmalloc, slub-lock, slub-tid, thiscpu-cache, \
             thiscpu-malloc, thiscpu-hardened can run the workload alloc",
        ),
        (
            &["metrics", "--contender", "atomic"],
            "only metrics-exporter-prometheus, prometheus-client, thiscpu, thiscpu-facade can run the workload metrics",
        ),
        (&["alloc", "--case", "pair-63"], "there are pair-8, pair-16"),
        (&["--no-such-option"], "--no-such-option"),
    ];
    for (args, hint) in cases {
        let output = bench(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty(), "{args:?}");
        assert!(stderr(&output).contains(hint), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn the_floor_is_refused_with_the_reason_where_it_cannot_run() {
    let output = bench(&["add", "--contender", "section"])
        .env("GLIBC_TUNABLES", "glibc.pthread.rseq=0")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("section is unavailable"), "{}", stderr(&output));
}

#[test]
fn add_times_everyone() {
    let lines = lines(&["add", "--threads", "1,2"]);
    assert_everyone_has(&lines, "", "time_per_op");
    let threads = those(&lines, "", "time_per_op", "threads");
    assert!([1, 2].iter().all(|count| threads.iter().any(|known| *known == count)));
    let ratios = those(&lines, "", "thiscpu_ratio", "contender");
    assert!(ratios.iter().all(|name| *name != "thiscpu"));
    assert!(those(&lines, "", "time_per_op", "unit").iter().all(|unit| *unit == "ns"));
}

#[test]
fn commit_has_two_cases_and_a_baseline() {
    let lines = lines(&["commit", "--threads", "2"]);
    assert_everyone_has(&lines, "accounting", "time_per_op");
    assert_everyone_has(&lines, "syscalls", "time_per_op");
    assert_everyone_has(&lines, "syscalls", "ratio_to_none");
    let is_baseline = |name: &&Value| **name == "none";
    assert!(those(&lines, "syscalls", "time_per_op", "contender").iter().any(is_baseline));
    assert!(!those(&lines, "accounting", "time_per_op", "contender").iter().any(is_baseline));
}

#[test]
fn sum_tells_how_wrong_everyone_is() {
    let lines = lines(&["sum"]);
    for metric in ["sums", "wrong_sums", "max_error", "time_per_sum", "time_per_sum_p999"] {
        assert_everyone_has(&lines, "token", metric);
    }
    assert_everyone_has(&lines, "slowdown", "adders_slowdown");
    for line in &lines {
        if line["metric"] == "wrong_sums"
            && ["atomic", "thiscpu"].contains(&line["contender"].as_str().unwrap())
        {
            assert_eq!(line["max"], 0.0, "{line}");
        }
    }
}

#[test]
fn threshold_times_everyone() {
    assert_everyone_has(&lines(&["threshold", "--threads", "2"]), "", "time_per_op");
}

#[test]
fn nospace_audits_everyone_and_those_who_are_right_pass() {
    let lines = lines(&["budget", "--threads", "2", "--audit", "5000"]);
    let competes = |case: &str, metric: &str| {
        let names = those(&lines, case, metric, "contender");
        ["atomic-cas", "compare-twice", "compare-once", "limited-add", "semaphore", "thiscpu"]
            .iter()
            .all(|name| names.iter().any(|known| *known == name))
    };
    assert!(
        ["far", "near", "oscillate", "exhausted"].iter().all(|case| competes(case, "time_per_op"))
    );
    for case in ["near", "oscillate", "exhausted"] {
        assert!(competes(case, "over_grants") && competes(case, "wrong_refusals"), "{case}");
        let audited = those(&lines, case, "audited", "median");
        assert!(audited.iter().all(|calls| calls.as_f64() >= Some(5000.0)), "{case}: {audited:?}");
    }
    let recalls = those(&lines, "oscillate", "recalls_per_second", "contender");
    assert_eq!(recalls, ["thiscpu"]);
}

#[test]
fn fault_has_two_cases_and_a_baseline() {
    let lines = lines(&["fault", "--threads", "2"]);
    let timed = |case| those(&lines, case, "time_per_op", "contender");
    let ledgers = ["atomic", "kamezawa", "per-thread-64", "memcg-stock", "thiscpu"];
    assert_eq!(timed("accounting"), ledgers);
    assert_eq!(timed("syscalls")[0], "none");
    assert_eq!(timed("syscalls")[1..], ledgers);
    assert_eq!(those(&lines, "syscalls", "ratio_to_none", "contender"), ledgers);
}

#[test]
fn tenants_times_everyone_and_caches_say_what_they_served() {
    let lines = lines(&["ledger"]);
    for case in ["single", "working-set-8", "working-set-64", "working-set-512", "zipf"] {
        let timed = those(&lines, case, "time_per_op", "contender");
        let cached = those(&lines, case, "hit_rate", "contender");
        for name in ["kamezawa", "per-thread-64", "memcg-stock"] {
            let competes = |names: &[&Value]| names.iter().any(|known| **known == name);
            assert!(competes(&timed) && competes(&cached), "{case}: {name}");
        }
        assert!(timed.iter().any(|name| *name == "atomic"), "{case}");
        let rates = those(&lines, case, "hit_rate", "median");
        let is_percent = |rate: &&Value| (0.0..=100.0).contains(&rate.as_f64().unwrap());
        assert!(rates.iter().all(is_percent), "{case}: {rates:?}");
    }
}

#[test]
fn tenants_accounts_for_every_unit() {
    let lines = lines(&["ledger", "--contender", "thiscpu", "--threads", "2", "--audit", "50000"]);
    let figure = |metric| match those(&lines, "audit", metric, "median")[..] {
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
    assert_eq!(those(&lines, "scrape", "time_per_scrape", "contender"), registries);
    let series = those(&lines, "scrape", "series", "median");
    assert!(series.iter().all(|count| **count == 1000.0), "{series:?}");
    let compared = those(&lines, "scrape", "thiscpu_ratio", "contender");
    assert_eq!(compared, [registries[0], registries[1], registries[3]]);
}

#[test]
fn memory_is_measured_in_children() {
    let lines = lines(&["memory", "--contender", "thiscpu,striped", "--contender", "atomic"]);
    for metric in ["counters", "resident", "resident_bytes_per_counter", "time_per_create"] {
        assert_eq!(those(&lines, "", metric, "contender").len(), 3, "{metric}");
    }
    for metric in ["accounts", "resident", "resident_bytes_per_account", "time_per_create"] {
        let names = those(&lines, "accounts", metric, "contender");
        assert_eq!(names, ["thiscpu", "atomic"], "{metric}");
    }
}

#[test]
fn a_table_says_how_it_was_measured() {
    let _turn = alone();
    let output =
        bench(&["add", "--threads", "1", "--contender", "atomic"]).args(TINY).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("tier "), "{text}");
    assert!(text.contains("1 round, 0.01 s a slice"), "{text}");
    assert!(text.contains("add, 1 thread") && text.contains("| atomic"), "{text}");
    assert_eq!(stderr(&output), "", "no progress bar without a terminal");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let _turn = alone();
    let mut child = bench(&["add", "commit", "--threads", "1", "--json"])
        .args(TINY)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut first).unwrap();
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
}

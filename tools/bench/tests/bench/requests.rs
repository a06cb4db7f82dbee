//! What a run is asked for: bad requests, `--list`, `--quick` and `--compare`.

use std::{fs, path::PathBuf, time::Instant};

use crate::{COLUMNS, TINY, alone, bench, lines, parse, run};

#[test]
fn bad_requests_run_nothing_and_name_what_exists() {
    let cases: [(&[&str], &str); 18] = [
        (
            &["adds"],
            "add, commit, sum, threshold, memory, lifetime, budget, fault, ledger, metrics, \
             shared, tower, alloc, walk",
        ),
        (
            &["--contender", "mutex"],
            "atomic, spinlock-fold, dumazet, li-gate, striped, section, atomic-cas, compare-twice, \
             compare-once, limited-add, semaphore, kamezawa, per-thread-64, memcg-stock, glibc, \
             mimalloc, jemalloc, snmalloc, rpmalloc, slub-lock, slub-tid, \
             metrics-exporter-prometheus, prometheus-client, tower, uncontended, robust-mutex, \
             sysv-semaphore, thiscpu-local, thiscpu, thiscpu-facade, thiscpu-shared, \
             thiscpu-cache, thiscpu-malloc, thiscpu-hardened",
        ),
        (&["--contender", "none"], "thiscpu"),
        (&["--threads", "0"], "from 1 to 4096"),
        (&["--threads", "1,,2"], "from 1 to 4096"),
        (&["--rounds", "0"], "0"),
        (&["--rounds", "-1"], "-1"),
        (&["--seconds", "-1"], "greater than 0"),
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
            "only glibc, mimalloc, jemalloc, snmalloc, rpmalloc, slub-lock, slub-tid, \
             thiscpu-cache, thiscpu-malloc, thiscpu-hardened can run the workload alloc",
        ),
        (
            &["metrics", "--contender", "atomic"],
            "only metrics-exporter-prometheus, prometheus-client, thiscpu, thiscpu-facade, \
             thiscpu-shared can run the workload metrics",
        ),
        (&["alloc", "--case", "pair-63"], "known are alloc pair-8, alloc pair-16"),
        (&["add", "--case", "nope"], "known are add (without a name)"),
        (&["--quick", "--rounds", "2"], "cannot be used with"),
        (&["--no-such-option"], "--no-such-option"),
    ];
    for (args, hint) in cases {
        let (text, errors) = run(&mut bench(args), 2);
        assert_eq!(text, "", "{args:?}");
        assert!(errors.contains(hint), "{args:?}: {errors}");
    }
}

#[test]
fn unknown_tier_is_refused_with_the_known_ones() {
    let (text, errors) = run(bench(&["add"]).args(TINY).env("THISCPU_TIER", "percpu"), 2);
    assert_eq!(text, "");
    for tier in ["rseq-cid", "rseq-cpu", "atomic"] {
        assert!(errors.contains(tier), "{errors}");
    }
}

#[test]
fn section_is_refused_with_the_reason_where_rseq_is_unregistered() {
    let mut command = bench(&["add", "--contender", "section"]);
    let (_, errors) = run(command.env("GLIBC_TUNABLES", "glibc.pthread.rseq=0"), 2);
    assert!(errors.contains("section is unavailable"), "{errors}");
}

#[test]
fn list_has_cases_contenders_and_metrics_and_runs_nothing() {
    let began = Instant::now();
    let (text, _) = run(&mut bench(&["--list"]), 0);
    for line in [
        "  budget near            2,16     1 to 64 blocks allocated",
        "  alloc pair-16384       1,2      One object allocated and freed (only if named)",
        "  alloc mixed-small      1        One object of 8 to 400 bytes freed and one allocated",
        "  walk 33792-remote      2,8,64   Blocks allocated, then passed to the next thread",
        "  fault      atomic, kamezawa, per-thread-64, memcg-stock, thiscpu, none",
        "  dumazet                     Lanes folded into an atomic total",
        "  wrong_sums                  Sums that were neither 0 nor 1 (count)",
    ] {
        assert!(text.contains(line), "{line:?} in {text}");
    }
    // A run of all cases takes minutes.
    assert!(began.elapsed().as_secs() < 30);
    let (text, _) = run(&mut bench(&["budget", "--case", "far", "--threads", "3", "--list"]), 0);
    assert!(text.contains("  budget far             3 "), "{text}");
    assert!(!text.contains("budget near"), "{text}");
}

/// Allows for one more round of the last case, and for a machine that runs other tests.
#[test]
fn quick_run_takes_20_seconds_and_has_all_workloads() {
    let _turn = alone();
    let began = Instant::now();
    let (text, _) = run(&mut bench(&["--quick", "--json"]), 0);
    let seconds = began.elapsed().as_secs();
    assert!(seconds < 60, "{seconds} s");
    for workload in ["add", "commit", "sum", "threshold", "memory", "budget", "fault", "ledger"] {
        assert!(text.contains(&format!(r#"{{"workload":"{workload}","#)), "{workload}");
    }
    assert!(text.contains(r#""case":"scrape""#) && text.contains(r#""case":"resident-64""#));
}

/// Writes a results.csv with the ratio of `add` to `atomic`, with one thread.
fn old_csv(test: &str, ratio: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}.csv"));
    let text = format!(
        "{COLUMNS}\n\
         add,,atomic,1,time_per_op,ns,6,5,7,7,false\n\
         add,,retired-design,1,thiscpu_ratio,ratio,1,1,1,7,false\n\
         add,,atomic,1,thiscpu_ratio,ratio,{ratio}\n"
    );
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn compare_exits_with_4_only_past_the_spread() {
    let compare = |test: &str, ratio: &str, more: &[&str], status| {
        let _turn = alone();
        let mut command = bench(&["add", "--threads", "1", "--contender", "atomic,thiscpu"]);
        command.args(["--seconds", "0.01", "--rounds", "3"]).args(more);
        run(command.arg("--compare").arg(old_csv(test, ratio)), status).0
    };
    let text = compare("worse", "1e-6,1e-6,2e-6,7,false", &[], 4);
    assert!(text.contains("| regression"), "{text}");
    assert!(text.contains("1 ratios compared: 1 worse past the spread, 0 better"), "{text}");

    // The old spread has any ratio of today in it.
    let same = parse(&compare("same", "1,1e-6,1e6,7,false", &["--json"], 0));
    let compared = same.last().unwrap();
    assert_eq!(compared["contender"], "atomic");
    assert_eq!(compared["compared"], "thiscpu_ratio");
    assert_eq!(compared["verdict"], "within the spread");
    assert_eq!(compared["old"]["max"], 1e6);
    let ratio = compared["new_to_old"]["median"].as_f64().unwrap();
    assert_eq!(Some(ratio), compared["new"]["median"].as_f64());

    let better = compare("better", "1e6,1e6,2e6,7,false", &[], 0);
    assert!(better.contains("| improvement"), "{better}");
    let once = compare("once", "1e-6,1e-6,1e-6,1,false", &[], 0);
    assert!(once.contains("| too few rounds"), "{once}");
    let partial = compare("partial", "1e-6,1e-6,1e-6,7,true", &[], 0);
    assert!(partial.contains("| partial"), "{partial}");
}

#[test]
fn compare_refuses_files_without_the_ratios_of_the_cases() {
    let other = old_csv("other", "1,1,1,7,false");
    let broken = old_csv("broken", "NaN,1,1,7,false");
    let endless = PathBuf::from("/dev/zero");
    let missing = PathBuf::from("/nowhere/old.csv");
    let foreign = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    for (path, workload, hint) in [
        (&missing, "add", "cannot open /nowhere/old.csv"),
        (&foreign, "add", "cannot read"),
        (&broken, "add", "broken.csv: line 4 has impossible figures"),
        (&endless, "add", "cannot read /dev/zero: it has more than"),
        (&other, "commit", "has no ratio of the cases and contenders that would run"),
    ] {
        let (_, errors) = run(bench(&[workload, "--compare"]).arg(path), 2);
        assert!(errors.contains(hint), "{errors}");
    }
    // Without thiscpu, there is no ratio.
    let mut alone = bench(&["add", "--contender", "atomic", "--compare"]);
    let (_, errors) = run(alone.arg(&other), 2);
    assert!(errors.contains("has no ratio of the cases and contenders"), "{errors}");
}

#[test]
fn figures_of_the_repository_can_be_compared() {
    let figures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/plots/results.csv");
    let text = fs::read_to_string(figures).unwrap();
    let cases: Vec<(String, String)> = lines(&["budget", "--contender", "atomic-cas,thiscpu"])
        .iter()
        .map(|line| (line["workload"].to_string(), line["case"].to_string()))
        .collect();
    for (workload, case) in cases {
        let columns = format!("{workload},{case},").replace('"', "");
        assert!(text.lines().any(|line| line.starts_with(&columns)), "{columns}");
    }
}

//! The workload `walk`: its lines of JSON, and its one table.

use std::{fs, path::Path};

use crate::{TINY, alone, assert_all_have, bench, contenders, lines, of_case, program, run};

const ORDERS: [&str; 5] = ["lifo", "fifo", "random", "remote", "peak"];

#[test]
fn walk_measures_time_and_memory_of_each_cell() {
    let cases = ORDERS.map(|order| format!("65536-{order}"));
    let lines = lines(&["walk", "--case", &cases.join(","), "--threads", "2"]);
    let others = ["mimalloc", "jemalloc", "snmalloc", "rpmalloc"];
    for case in &cases {
        let metrics = ["time_per_op", "peak_bytes"];
        assert_all_have(&lines, case, &metrics, &["glibc", "thiscpu-malloc"]);
        let timed = contenders(&lines, case, "time_per_op");
        let is_right = |name| timed.contains(name) == cfg!(feature = "other-allocators");
        assert!(others.iter().all(is_right), "{case}: {timed:?}");
        let times = of_case(&lines, case, "time_per_op", "median");
        assert!(times.iter().all(|time| time.as_f64() > Some(0.0)), "{case}: {times:?}");
        assert!(contenders(&lines, case, "malloc_ratio").contains(&"glibc"), "{case}");
    }
    // 32 MiB, all of which are touched; the kernel's counters lag.
    let peaks = of_case(&lines, "65536-peak", "peak_bytes", "median");
    assert!(peaks.iter().all(|bytes| bytes.as_f64() > Some(24e6)), "{peaks:?}");
}

#[test]
fn quick_walk_prints_one_table_with_all_orders_and_threads() {
    let turn = alone();
    let (text, _) = run(&mut bench(&["walk", "--quick"]), 0);
    drop(turn);
    assert!(text.contains("\nVersions: glibc "), "{text}");
    let (_, text) = text.split_once("walk, all cells: ").unwrap();
    let (cells, text) = text.split_once("walk: geometric means").unwrap();
    let (means, worst) = text.split_once("walk: the marked cells, the worst first").unwrap();
    assert!(worst.contains("| best peer "), "{worst}");
    let cells = of_table(cells);
    assert_eq!(
        cells[0],
        [
            "size",
            "order",
            "threads",
            "fastest peer",
            "smallest peer",
            "time",
            "its time",
            "time / it",
            "peak",
            "its peak",
            "peak / it"
        ]
    );
    for size in ["16 B", "256 KiB"] {
        for order in ORDERS {
            for threads in ["1", "2", "8", "64"] {
                let is_it = |row: &&Vec<String>| row[..3] == [size, order, threads];
                let row = cells.iter().find(is_it);
                // One thread has no other one to pass blocks to.
                assert_eq!(row.is_none(), (order, threads) == ("remote", "1"), "{size} {order}");
                if let Some(row) = row {
                    let is_full = [3, 5, 6, 7].iter().all(|&column| !row[column].is_empty());
                    assert!(is_full, "{row:?}");
                }
            }
        }
    }
    let means = of_table(means);
    let titles = ["cells", "timed", "time / fastest", "slow", "compared peaks", "peak / smallest"];
    assert_eq!(means[0][..6], titles);
    let names: Vec<&str> = means[1..].iter().map(|row| row[0].as_str()).collect();
    for name in ORDERS.map(|order| format!("order {order}")) {
        assert!(names.contains(&&*name), "{names:?}");
    }
    for name in ["threads 64", "10 to 99 bytes", "100,000 to 999,999 bytes", "all"] {
        assert!(names.contains(&name), "{names:?}");
    }
    let all = means.last().unwrap();
    assert_eq!((&*all[0], &*all[1]), ("all", "38"), "{all:?}");
}

/// Returns the cells of a printed table, row by row, without the line below its header.
fn of_table(text: &str) -> Vec<Vec<String>> {
    let rows = text.lines().filter(|line| line.starts_with("| "));
    let cells = |line: &str| {
        let cells = line.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().to_owned()).collect()
    };
    rows.map(cells).collect()
}

#[test]
fn report_of_a_walk_has_the_table_and_no_plots() {
    let report = Path::new(env!("CARGO_TARGET_TMPDIR")).join("walk");
    let _ = fs::remove_dir_all(&report);
    let turn = alone();
    let cell = ["walk", "--case", "33792-random", "--threads", "1", "--report"];
    run(bench(&cell).arg(&report).args(TINY), 0);
    drop(turn);
    let page = fs::read_to_string(report.join("index.html")).unwrap();
    assert!(page.contains(r#"scope="row">33 KiB</th>"#), "{page}");
    assert!(!page.contains("walk 33792-random, 1 thread") && !page.contains("<svg"), "{page}");
}

#[test]
fn several_walks_print_one_table() {
    let turn = alone();
    let cells = ["walk", "--case", "8-lifo", "--threads", "1", "--runs", "3"];
    let (text, _) = run(bench(&cells).args(TINY), 0);
    drop(turn);
    assert!(text.contains(", 3 runs, 1 round, "), "{text}");
    let (cells, _) = text.split_once("walk: geometric means").unwrap();
    assert_eq!(of_table(cells).len(), 2, "a header and a row for all three walks: {text}");
    for others in [&["--runs", "3"][..], &["add", "--runs", "2"]] {
        let (_, errors) = run(&mut bench(others), 2);
        assert!(errors.contains("--runs repeats the workload walk"), "{errors}");
    }
    let (_, errors) = run(&mut bench(&["walk", "--runs", "2", "--report", "/nowhere/x"]), 2);
    assert!(errors.contains("cannot be used with"), "{errors}");
}

#[test]
fn walk_child_refuses_impossible_specs() {
    let spec = r#"{"case":"65-lifo","contender":"glibc","threads":1,
        "length":{"secs":0,"nanos":5}}"#;
    let (text, _) = run(program().args(["walk-child", spec]), 2);
    assert_eq!(text, "");
}

//! `--report`: refused directories, the files it writes, and those of a run that ends early.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use crate::{COLUMNS, TINY, alone, bench, parse, program, results, run, spawn};

/// Makes an empty directory for a test.
fn directory(test: &str) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    directory
}

fn bench_add(report: &Path, options: &[&str], status: i32) -> (String, String) {
    let _turn = alone();
    let mut command = bench(&["add", "--threads", "1", "--contender", "atomic,thiscpu"]);
    run(command.args(TINY).args(options).arg("--report").arg(report), status)
}

#[test]
fn unusable_directories_are_refused_before_anything_is_measured() {
    let directory = directory("refused");
    let file = directory.join("file");
    fs::write(&file, "foreign").unwrap();
    let closed = directory.join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
    let below_file = file.join("report");
    let mut cases: Vec<(&Path, &str)> = vec![
        (&file, "is a file; name a directory"),
        (&below_file, "cannot create the directory"),
        (Path::new("/proc/report"), "cannot create the directory"),
        (&directory, "has files that are not of a report; name an empty directory"),
    ];
    // Root may write everywhere.
    if fs::write(closed.join("tried"), "").is_err() {
        cases.push((&closed, "cannot write to the directory"));
    }
    for (report, hint) in cases {
        let (text, errors) = bench_add(report, &[], 2);
        assert_eq!(text, "", "{report:?}");
        assert!(errors.contains(hint), "{report:?}: {errors}");
    }
    assert_eq!(fs::read_to_string(file).unwrap(), "foreign");
    run(&mut bench(&["--report"]), 2);
    // A bad request of another kind leaves no directory behind.
    let unmade = directory.join("unmade");
    run(bench(&["alloc", "--contender", "thiscpu", "--report"]).arg(&unmade), 2);
    assert!(!unmade.exists());
}

#[test]
fn report_has_the_printed_figures() {
    let report = directory("printed").join("made/for/it");
    let (text, place) = bench_add(&report, &["--json"], 0);
    assert_eq!(place, format!("the report is in {}\n", report.join("index.html").display()));

    let printed = parse(&text);
    let results = results(&report);
    assert_eq!(results["format"], "thiscpu-bench-report-2");
    assert_eq!((&results["is_complete"], &results["cases_done"]), (&true.into(), &1.into()));
    let run = &results["run"];
    let command = run["command"].as_str().unwrap();
    assert!(command.contains(" -- bench add --threads 1 --contender "), "{command}");
    assert!(run["machine"]["cpus_allowed"].as_u64() >= Some(1), "{run}");
    assert!(report.join("add.svg").exists());

    // The rows are the printed lines, with the values of the rounds.
    let rows = results["rows"].as_array().unwrap();
    assert_eq!(rows.len(), printed.len());
    for (row, printed) in rows.iter().zip(&printed) {
        let values = row["values"].as_array().unwrap();
        assert_eq!(values.len() as u64, row["rounds"].as_u64().unwrap());
        let smallest = values.iter().map(|value| value.as_f64().unwrap()).reduce(f64::min);
        assert_eq!(smallest, row["min"].as_f64());
        let mut row = row.clone();
        row.as_object_mut().unwrap().remove("values");
        assert_eq!(row, *printed);
    }
    let csv = fs::read_to_string(report.join("results.csv")).unwrap();
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some(COLUMNS));
    assert_eq!(lines.count(), printed.len());
    let page = fs::read_to_string(report.join("index.html")).unwrap();
    let median = printed[0]["median"].as_f64().unwrap();
    // Above 100 ns the page has fewer digits.
    assert!(median >= 100.0 || page.contains(&format!("{median:.2} ns")), "{median}");
    assert!(!page.contains("figures are partial"));
}

#[test]
fn earlier_report_is_replaced() {
    let report = directory("replaced");
    bench_add(&report, &[], 0);
    let earlier = results(&report);
    let turn = alone();
    let mut again = bench(&["sum", "--case", "token", "--contender", "thiscpu", "--report"]);
    let (text, _) = run(again.arg(&report).args(TINY), 0);
    drop(turn);
    assert!(text.contains("sum token, 4 threads"), "{text}");
    let results = results(&report);
    assert_ne!(earlier["rows"], results["rows"]);
    assert!(!report.join("add.svg").exists() && report.join("sum-token.svg").exists());
    let deviations = results["deviations"].as_array().unwrap();
    assert_eq!(deviations.len(), 1);
    assert_eq!((&deviations[0]["from"], &deviations[0]["to"]), (&0.into(), &0.into()));
    let figure = |metric: &str| {
        let rows = results["rows"].as_array().unwrap();
        rows.iter().find(|row| row["metric"] == metric).unwrap()["median"].as_f64().unwrap()
    };
    let sums = deviations[0]["sums"].as_f64().unwrap();
    assert_eq!((sums, figure("wrong_sums")), (figure("sums"), 0.0));
}

#[test]
fn report_is_drawn_again_from_its_results() {
    let report = directory("redrawn");
    bench_add(&report, &[], 0);
    let read = |name: &str| fs::read_to_string(report.join(name)).unwrap();
    let names = ["index.html", "add.svg", "results.csv", "results.json"];
    let before = names.map(read);
    fs::remove_file(report.join("index.html")).unwrap();
    fs::remove_file(report.join("add.svg")).unwrap();
    run(program().arg("report").arg(&report), 0);
    for (name, before) in names.into_iter().zip(before) {
        assert!(read(name) == before, "{name} is another one");
    }

    fs::remove_file(report.join("results.json")).unwrap();
    let (_, errors) = run(program().arg("report").arg(&report), 1);
    assert!(errors.contains("cannot read"), "{errors}");
}

#[test]
fn report_of_a_killed_run_has_the_finished_cases() {
    let report = directory("killed").join("report");
    let _turn = alone();
    // More than can run before this process has read a line.
    let workloads = ["add", "commit", "threshold", "budget", "fault", "ledger", "memory", "sum"];
    let mut command = bench(&workloads);
    let mut child = spawn(command.args(["--json", "--report"]).arg(&report).args(TINY));
    // A case is printed after it is on the page.
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.find(|line| line.as_ref().unwrap().contains(r#""threads":2"#)).unwrap().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let results = results(&report);
    assert_eq!(results["is_complete"], false);
    assert!(results["rows"].as_array().unwrap().iter().all(|row| row["workload"] != "sum"));
    assert_eq!(results["rows"][0]["workload"], "add");
    let page = fs::read_to_string(report.join("index.html")).unwrap();
    assert!(page.contains("These figures are partial"), "{page}");
}

/// Checks `bench --report DIR | head -1`: the page has all cases.
#[test]
fn report_is_completed_when_nobody_reads_the_output() {
    let report = directory("unread").join("report");
    let _turn = alone();
    let mut command = bench(&["add", "--threads", "1,2", "--contender", "thiscpu", "--report"]);
    let mut child = spawn(command.arg(&report).args(TINY));
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let results = results(&report);
    assert_eq!((&results["is_complete"], &results["cases_done"]), (&true.into(), &2.into()));
}

#[test]
fn documents_show_each_picture_that_is_kept() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pictures = |page: &str| -> Vec<String> {
        let text = fs::read_to_string(root.join(page)).unwrap();
        let paths = text.split("plots/").skip(1);
        let names = paths.filter_map(|rest| rest.split(['"', ')']).next());
        names.filter(|name| name.ends_with(".svg")).map(str::to_owned).collect()
    };
    let mut shown = pictures("docs/benchmarks.md");
    for name in pictures("README.md") {
        assert!(shown.contains(&name), "docs/benchmarks.md does not show {name}");
    }
    let entries = fs::read_dir(root.join("docs/plots")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut kept: Vec<_> = names.filter(|name| name.ends_with(".svg")).collect();
    kept.sort();
    shown.sort();
    assert_eq!(shown, kept);
}

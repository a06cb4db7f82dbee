//! `--report`: what is refused before anything is measured, what is written, and what is left when a run ends early.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Output, Stdio},
};

use serde_json::Value;

use crate::{TINY, alone, bench, stderr};

/// A directory of a test's own, with nothing in it.
fn directory(test: &str) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    directory
}

fn bench_add(report: &Path, options: &[&str]) -> Output {
    let _turn = alone();
    let mut command = bench(&["add", "--threads", "1", "--contender", "atomic,thiscpu"]);
    command.args(TINY).args(options).arg("--report").arg(report).output().unwrap()
}

fn results(directory: &Path) -> Value {
    serde_json::from_slice(&fs::read(directory.join("results.json")).unwrap()).unwrap()
}

#[test]
fn what_cannot_be_written_is_refused_before_anything_is_measured() {
    let directory = directory("refused");
    let file = directory.join("file");
    fs::write(&file, "somebody's").unwrap();
    let closed = directory.join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
    let below_file = file.join("report");
    let mut cases: Vec<(&Path, &str)> = vec![
        (&file, "is a file; name a directory for the report"),
        (&below_file, "cannot make the directory"),
        (Path::new("/proc/report"), "cannot make the directory"),
        (&directory, "has files in it that are not of a report; name an empty directory"),
    ];
    // Nothing is closed to root.
    if fs::write(closed.join("tried"), "").is_err() {
        cases.push((&closed, "cannot write to the directory"));
    }
    for (report, hint) in cases {
        let output = bench_add(report, &[]);
        assert_eq!(output.status.code(), Some(2), "{}: {}", report.display(), stderr(&output));
        assert!(output.stdout.is_empty(), "{}", report.display());
        assert!(stderr(&output).contains(hint), "{}: {}", report.display(), stderr(&output));
    }
    assert_eq!(fs::read_to_string(file).unwrap(), "somebody's");
    assert_eq!(bench(&["--report"]).output().unwrap().status.code(), Some(2));
    // A bad request of another kind leaves no directory behind.
    let unmade = directory.join("unmade");
    let mut command = bench(&["alloc", "--contender", "thiscpu", "--report"]);
    assert_eq!(command.arg(&unmade).output().unwrap().status.code(), Some(2));
    assert!(!unmade.exists());
}

#[test]
fn a_report_has_what_was_printed() {
    let report = directory("printed").join("made/for/it");
    let output = bench_add(&report, &["--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let place = format!("the report is in {}\n", report.join("index.html").display());
    assert_eq!(stderr(&output), place);

    let printed = String::from_utf8(output.stdout).unwrap();
    let printed: Vec<Value> =
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let results = results(&report);
    assert_eq!(results["rows"], Value::Array(printed.clone()));
    assert_eq!(results["format"], "thiscpu-bench-report-1");
    assert_eq!((&results["is_complete"], &results["cases_done"]), (&true.into(), &1.into()));
    let run = &results["run"];
    let command = run["command"].as_str().unwrap();
    assert!(command.contains(" -- bench add --threads 1 --contender "), "{command}");
    assert!(run["machine"]["cpus_allowed"].as_u64() >= Some(1), "{run}");
    assert_eq!(results["plots"], serde_json::json!(["add.svg"]));
    assert!(report.join("add.svg").exists());

    let csv = fs::read_to_string(report.join("results.csv")).unwrap();
    let mut lines = csv.lines();
    let columns = "workload,case,contender,threads,metric,unit,median,min,max,rounds";
    assert_eq!(lines.next(), Some(columns));
    assert_eq!(lines.count(), printed.len());
    assert_eq!(fs::read_to_string(report.join("deviations.csv")).unwrap(), "");
    // The medians are those of the rounds, which are there once as lines and once as lists.
    let rounds = fs::read_to_string(report.join("rounds.csv")).unwrap();
    let mut lines = rounds.lines();
    let columns = "workload,case,contender,threads,metric,unit,round,value";
    assert_eq!(lines.next(), Some(columns));
    let lists = results["measured"].as_array().unwrap();
    let values = |list: &Value| -> Vec<f64> {
        list["values"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
    };
    assert_eq!(lines.count(), lists.iter().map(|list| values(list).len()).sum::<usize>());
    for list in lists.iter().filter(|list| list["metric"] == "time_per_op") {
        let row = printed.iter().find(|row| {
            ["contender", "metric", "threads"].iter().all(|&key| row[key] == list[key])
        });
        let row = row.unwrap();
        let smallest = values(list).into_iter().fold(f64::INFINITY, f64::min);
        assert_eq!(Some(smallest), row["min"].as_f64());
        assert_eq!(values(list).len() as u64, row["rounds"].as_u64().unwrap());
        // As numbers: the last digit is lost on the way.
        let is_first = |line: &str| {
            let (rest, value) = line.rsplit_once(',')?;
            let value: f64 = value.parse().ok()?;
            Some(rest.ends_with(",1") && (value - values(list)[0]).abs() < 1e-9)
        };
        assert!(rounds.lines().any(|line| is_first(line) == Some(true)), "{rounds}");
    }
    let page = fs::read_to_string(report.join("index.html")).unwrap();
    let median = printed[0]["median"].as_f64().unwrap();
    // As long as it is below 100 ns.
    assert!(median >= 100.0 || page.contains(&format!("{median:.2} ns")), "{median}");
    assert!(!page.contains("not complete"));
}

#[test]
fn a_table_and_a_report_go_together_and_an_earlier_report_is_replaced() {
    let report = directory("replaced");
    assert_eq!(bench_add(&report, &[]).status.code(), Some(0));
    let earlier = results(&report);
    let turn = alone();
    let mut again = bench(&["sum", "--case", "token", "--contender", "thiscpu", "--report"]);
    let output = again.arg(&report).args(TINY).output().unwrap();
    drop(turn);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("sum token, 4 threads"));
    let results = results(&report);
    assert_ne!(earlier["rows"], results["rows"]);
    assert!(!report.join("add.svg").exists() && report.join("sum-token.svg").exists());
    let deviations = fs::read_to_string(report.join("deviations.csv")).unwrap();
    let lines: Vec<&str> = deviations.lines().collect();
    assert_eq!(lines[0], "workload,case,contender,threads,from,to,sums");
    assert!(lines[1].starts_with("sum,token,thiscpu,4,0,0,"), "{deviations}");
    assert_eq!(lines.len(), 2);
    let figure = |metric: &str| {
        let rows = results["rows"].as_array().unwrap();
        rows.iter().find(|row| row["metric"] == metric).unwrap()["median"].as_f64().unwrap()
    };
    let sums = results["deviations"][0]["sums"].as_f64().unwrap();
    assert_eq!((sums, figure("wrong_sums")), (figure("sums"), 0.0));
}

#[test]
fn what_was_measured_is_there_when_a_run_is_interrupted() {
    let report = directory("interrupted").join("report");
    let _turn = alone();
    // More than can be done before this process has read a line, and done what it does then.
    let workloads = ["add", "commit", "threshold", "budget", "fault", "ledger", "memory", "sum"];
    let mut child = bench(&workloads)
        .args(["--json", "--report"])
        .arg(&report)
        .args(TINY)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
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
    assert!(page.contains("This run is not complete"), "{page}");
}

/// `bench --report DIR | head -1`: the page has all.
#[test]
fn a_report_goes_on_when_nobody_reads_what_is_printed() {
    let report = directory("unread").join("report");
    let _turn = alone();
    let mut child = bench(&["add", "--threads", "1,2", "--contender", "thiscpu", "--report"])
        .arg(&report)
        .args(TINY)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
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

//! Looks that are printed: no terminal is needed.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

use serde_json::Value;
use thiscpu_test_support::{SetOnDrop, text};

use crate::fixture::{Child, PROGRAM, Place, once, run};
use crate::tmux::Tmux;

/// Words of a segment's header.
const MAGIC: u64 = 0;
const LANES: u64 = 4;
/// The first word of the index.
const INDEX: u64 = 4096 / 8;

fn set_word(path: &Path, number: u64, value: u64) {
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(&value.to_le_bytes(), 8 * number).unwrap();
}

#[test]
fn once_prints_values_in_order() {
    let place = Place::new();
    let segment = place.create("shop");
    segment.counter("requests").unwrap().add(7);
    segment.counters::<2>("bytes").unwrap().add(1, 1 << 40);
    let budget = segment.budget("connections", 100).unwrap();
    budget.try_acquire(30).unwrap();
    assert_eq!(budget.available(), 70);
    let (status, stdout, stderr) = run(&mut once(&place.path("shop"), &["--sort", "value"]));
    assert_eq!((status, &*stderr), (Some(0), ""), "{stdout}");
    let lines: Vec<_> = stdout.lines().collect();
    let segment_line = format!("segment {}: 3 objects of ", place.path("shop").display());
    assert!(lines[0].starts_with(&segment_line), "{stdout}");
    let process = format!("{:>7}     0    30        1  alive", std::process::id());
    let tables = [
        "",
        "        VALUE  RATE/S  COUNTER",
        "1099511627776       -  bytes[1]",
        "            7       -  requests",
        "            0       -  bytes[0]",
        "",
        "LIMIT  HELD  FREE  WAITING  BUDGET",
        "  100    30    70       no  connections",
        "",
        "PROCESS  SLOT  HELD  BUDGETS  STATE",
        &process,
    ];
    // Labels end where their numbers do.
    let trimmed: Vec<_> = lines[1..].iter().map(|line| line.trim()).collect();
    assert_eq!(trimmed, tables.map(str::trim), "{stdout}");
    let (_, stdout, _) = run(&mut once(&place.path("shop"), &["--sort", "name", "--reverse"]));
    let names: Vec<_> =
        stdout.lines().skip(3).take(3).map(|line| &line[line.len() - 8..]).collect();
    assert_eq!(names, ["requests", "bytes[1]", "bytes[0]"]);
    let options = ["--sort", "name", "--rows", "1", "--filter", "REQ"];
    let (_, stdout, _) = run(&mut once(&place.path("shop"), &options));
    assert_eq!(stdout.lines().skip(3).collect::<Vec<_>>(), ["    7       -  requests"]);
}

#[test]
fn json_has_an_object_in_each_line_and_rates() {
    let place = Place::new();
    let segment = place.create("shop");
    let requests = segment.counter("requests").unwrap();
    segment.counters::<2>("pair").unwrap().add(1, 5);
    segment.budget("connections", 100).unwrap().close();
    let is_over = AtomicBool::new(false);
    let stdout = thread::scope(|threads| {
        threads.spawn(|| {
            while !is_over.load(SeqCst) {
                requests.inc();
            }
        });
        let _over = SetOnDrop(&is_over);
        let mut command = Command::new(PROGRAM);
        command.args(["--json", "--count", "2", "--interval", "0.1"]).arg(place.path("shop"));
        let (status, stdout, stderr) = run(&mut command);
        assert_eq!((status, &*stderr), (Some(0), ""));
        stdout
    });
    let looks: Vec<Value> =
        stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(looks.len(), 2, "{stdout}");
    for look in &looks {
        let objects = look["objects"].as_array().unwrap();
        let named = |name: &str| objects.iter().find(|it| it["name"] == name).unwrap();
        assert!(named("requests")["values"][0]["rate"].as_f64().unwrap() > 0.0, "{look}");
        let pair = named("pair");
        assert_eq!((&pair["kind"], &pair["count"]), (&"counters".into(), &2.into()));
        let second = serde_json::json!({ "low": 5, "high": 5, "exact": true, "rate": 0.0 });
        assert_eq!(pair["values"][1], second);
        let state = &named("connections")["values"][0];
        assert_eq!((&state["limit"], &state["closed"]), (&100.into(), &true.into()));
        assert_eq!((&state["held"], &state["free"]), (&0.into(), &100.into()));
        assert_eq!((&look["stale"], &look["damaged_records"]), (&Value::Null, &0.into()));
    }
    let value = |look: &Value| {
        let objects = look["objects"].as_array().unwrap();
        let requests = objects.iter().find(|it| it["name"] == "requests").unwrap();
        requests["values"][0]["low"].as_i64().unwrap()
    };
    assert!(value(&looks[0]) < value(&looks[1]), "{stdout}");
}

#[test]
fn missing_and_damaged_segments_end_with_1() {
    let place = Place::new();
    let path = place.path("shop");
    let (status, stdout, stderr) = run(&mut once(&path, &[]));
    assert_eq!((status, &*stdout), (Some(1), ""));
    assert!(stderr.starts_with("thiscpu-top: cannot open /"), "{stderr}");
    for (number, value, wanted) in
        [(LANES, 0, "its number of lanes is damaged"), (MAGIC, 1, "it is not a segment")]
    {
        let _ = fs::remove_file(&path);
        drop(place.create("shop"));
        set_word(&path, number, value);
        let (status, stdout, stderr) = run(&mut once(&path, &[]));
        assert_eq!((status, &*stdout), (Some(1), ""));
        assert!(stderr.contains(wanted) && stderr.contains("; "), "{stderr}");
    }
    let (status, _, stderr) = run(&mut once(Path::new("1073741824"), &[]));
    assert_eq!(status, Some(1));
    assert!(stderr.contains("there is no process 1073741824"), "{stderr}");
}

#[test]
fn damaged_objects_are_told_and_end_with_1() {
    let place = Place::new();
    let path = place.path("shop");
    place.create("shop").counter("requests").unwrap().add(7);
    assert_eq!(run(&mut once(&path, &[])).0, Some(0));
    // An entry of the index that leads nowhere.
    let is_zero = |word: &[u8]| word.iter().all(|&byte| byte == 0);
    let unused = fs::read(&path).unwrap().chunks(8).skip(INDEX as usize).position(is_zero);
    set_word(&path, INDEX + unused.unwrap() as u64, 1);
    let (status, stdout, stderr) = run(&mut once(&path, &[]));
    assert_eq!((status, &*stderr), (Some(1), ""), "{stdout}");
    assert!(stdout.contains("shop: 1 record is damaged; 1 object of "), "{stdout}");
    assert!(stdout.contains("    7       -  requests\n"), "{stdout}");
    let (status, stdout, _) = run(&mut once(&path, &["--json"]));
    let look: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((status, &look["damaged_records"]), (Some(1), &1.into()), "{stdout}");
    assert_eq!(look["segment"], path.to_str().unwrap());
    let Some(tmux) = Tmux::start(80, 24) else { return };
    tmux.line(&format!("{PROGRAM} {}", path.display()));
    tmux.wait_for_text("\n1 record is damaged\n");
}

#[test]
fn wrong_requests_end_with_2() {
    let place = Place::new();
    let shop = place.create("shop");
    let refused = |options: &[&str]| {
        let (status, stdout, stderr) = run(Command::new(PROGRAM).args(options));
        assert_eq!((status, &*stdout), (Some(2), ""), "{options:?}: {stderr}");
        stderr
    };
    assert!(refused(&["--interval", "0.01"]).contains("use 0, or 0.1 to 86400 seconds"));
    let path = place.path("shop");
    let path = path.to_str().unwrap();
    assert!(refused(&["--json", "--interval", "0", path]).contains("has no end"));
    refused(&["--once", "--count", "2", path]);
    refused(&["--count", "0", path]);
    for options in [&["--rows", "3"][..], &["--sort", "name"], &["--reverse"]] {
        refused(&[&["--json", "--once", path], options].concat());
    }
    let child = Child::start("count 2");
    let stderr = refused(&["--once", &child.id()]);
    assert!(stderr.contains(" uses 2 segments; give one of them:\n"), "{stderr}");
    let paths: Vec<_> = stderr.lines().filter_map(|line| line.strip_prefix("  ")).collect();
    let values = paths.iter().map(|path| {
        let stdout = run(&mut once(Path::new(path), &[])).1;
        let line = stdout.lines().find(|line| line.ends_with("  in the child")).unwrap();
        line.split_whitespace().next().unwrap().to_owned()
    });
    let mut values: Vec<_> = values.collect();
    values.sort();
    assert_eq!(values, ["42", "43"]);
    drop(shop);
}

#[test]
fn process_leads_to_its_segment_without_name() {
    let child = Child::start("count 1");
    let (status, stdout, stderr) = run(&mut once(Path::new(&child.id()), &[]));
    assert_eq!((status, &*stderr), (Some(0), ""), "{stdout}");
    assert!(stdout.starts_with("segment /memfd:thiscpu-segment (deleted) of process "), "{stdout}");
    assert!(stdout.contains("   42       -  in the child\n"), "{stdout}");
}

#[test]
fn errors_of_output_are_noticed() {
    let place = Place::new();
    drop(place.create("shop"));
    for options in [&[][..], &["--json"], &["--help"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = once(&place.path("shop"), options).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{options:?}");
        let stderr = text(&output.stderr);
        assert!(stderr.contains("thiscpu-top: cannot write to standard output: "), "{stderr}");
        let mut unread = once(&place.path("shop"), options);
        let mut unread = unread.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(unread.stdout.take());
        let output = unread.wait_with_output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
    }
}

#[test]
fn closed_pipe_ends_looks_without_end() {
    let place = Place::new();
    drop(place.create("shop"));
    let mut looks = Command::new(PROGRAM);
    looks.args(["--json", "--interval", "0.1"]).arg(place.path("shop"));
    let mut looks = looks.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(looks.stdout.take());
    let output = looks.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}

#[test]
fn names_cannot_change_the_terminal() {
    // A segment's file may be named in any way.
    let place = Place::new();
    drop(place.create("a\u{1b}[2Jb"));
    let (_, stdout, _) = run(&mut once(&place.path("a\u{1b}[2Jb"), &[]));
    assert!(stdout.contains("/a\\u{1b}[2Jb: ") && !stdout.contains('\u{1b}'), "{stdout:?}");
}

#[test]
fn completions_and_manual_name_the_options() {
    let (status, stdout, _) = run(Command::new(PROGRAM).args(["--completions", "bash"]));
    assert!(status == Some(0) && stdout.contains("--filter") && !stdout.contains("--man"));
    let directory = tempfile::tempdir().unwrap();
    let status = run(Command::new(PROGRAM).arg("--man").arg(directory.path())).0;
    let page = fs::read_to_string(directory.path().join("thiscpu-top.1")).unwrap();
    assert!(status == Some(0) && page.contains(".SH NAME") && page.contains("Exit status"));
}

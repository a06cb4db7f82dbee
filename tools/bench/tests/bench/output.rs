//! How a run ends: failed writes, closed pipes, Ctrl-C; and its progress on a terminal.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _},
    os::fd::{FromRawFd as _, OwnedFd},
    process::{Child, Command, Output, Stdio},
    thread,
    time::Duration,
};

use crate::{TINY, alone, bench, program, stderr, stdout};

#[test]
fn failed_writes_end_with_1_and_the_reason() {
    let _turn = alone();
    let mut report = program();
    report.arg("--help");
    let mut version = program();
    version.arg("--version");
    let mut text = bench(&["add", "--threads", "1", "--contender", "atomic"]);
    text.args(TINY);
    let mut json = bench(&["add", "--threads", "1", "--contender", "atomic", "--json"]);
    json.args(TINY);
    for command in [&mut bench(&["--list"]), &mut text, &mut json, &mut report, &mut version] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = command.stdout(full).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{command:?}: {}", stderr(&output));
        let reason = "error: cannot write to standard output: No space left on device";
        assert!(stderr(&output).contains(reason), "{command:?}: {}", stderr(&output));
    }
}

#[test]
fn closed_pipe_is_no_failure() {
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

/// Kills a program after two minutes, so that its test fails instead of hanging.
fn kill_after_two_minutes(child: &Child) {
    let pid = child.id().to_string();
    thread::spawn(move || {
        thread::sleep(Duration::from_secs(120));
        let _ = Command::new("kill").args(["-KILL", &pid]).status();
    });
}

fn interrupt(child: &Child) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
}

/// Interrupts a run after its first line that contains `line`, and returns its output.
fn interrupt_after(command: &mut Command, line: &str) -> (Output, String) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    while !text.lines().last().unwrap_or_default().contains(line) {
        assert!(reader.read_line(&mut text).unwrap() > 0, "{text}");
    }
    // The case after that line is under way.
    thread::sleep(Duration::from_millis(200));
    interrupt(&child);
    reader.read_to_string(&mut text).unwrap();
    (child.wait_with_output().unwrap(), text)
}

#[test]
fn interrupted_run_prints_and_saves_what_was_measured() {
    let _turn = alone();
    let report = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("partial");
    let _ = fs::remove_dir_all(&report);
    let mut command = bench(&["add", "--threads", "1", "--contender", "atomic,thiscpu"]);
    command.args(["--seconds", "0.4", "--rounds", "100000", "--report"]).arg(&report);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    kill_after_two_minutes(&child);
    thread::sleep(Duration::from_millis(1500));
    interrupt(&child);
    let status = child.wait().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(status.code(), Some(130), "{}", stderr(&output));
    assert!(stderr(&output).contains("interrupted after 0 of 1 cases: these figures are partial"));
    let text = stdout(&output);
    assert!(text.contains("add, 1 thread (partial)") && text.contains("| atomic "), "{text}");
    let results = fs::read_to_string(report.join("results.json")).unwrap();
    let results: serde_json::Value = serde_json::from_str(&results).unwrap();
    assert_eq!((&results["is_complete"], &results["cases_done"]), (&false.into(), &0.into()));
    let rounds = results["rows"][0]["rounds"].as_u64().unwrap();
    assert!((1..10).contains(&rounds), "{results}");
    let page = fs::read_to_string(report.join("index.html")).unwrap();
    assert!(page.contains("These figures are partial: 0 of 1 cases are complete"), "{page}");
}

#[test]
fn interrupted_children_leave_the_earlier_cases() {
    let _turn = alone();
    let mut command = bench(&["add", "alloc", "--threads", "1", "--json", "--rounds", "1"]);
    command.args(["--contender", "atomic,glibc", "--seconds", "2"]);
    let (output, text) = interrupt_after(&mut command, r#""workload":"add""#);
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(!stderr(&output).contains("error"), "{}", stderr(&output));
    assert!(!text.contains(r#""workload":"alloc""#), "{text}");
}

#[test]
fn long_audit_announces_its_time_and_ends_with_the_audit_so_far() {
    for (workload, case) in [("budget", "near"), ("ledger", "audit")] {
        let _turn = alone();
        let mut child = bench(&[workload, "--case", case, "--contender", "thiscpu"])
            .args(["--threads", "2", "--audit", "1000000000000", "--json"])
            .args(TINY)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        kill_after_two_minutes(&child);
        let mut reader = BufReader::new(child.stderr.take().unwrap());
        let mut announced = String::new();
        reader.read_line(&mut announced).unwrap();
        assert!(
            announced.starts_with("auditing 1,000,000,000,000 calls takes about"),
            "{announced}"
        );
        assert!(announced.contains("in all for 1 measurements"), "{announced}");
        interrupt(&child);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{announced}");
        let text = stdout(&output);
        let audited = text.lines().find(|line| line.contains(r#""metric":"audited""#));
        let audited: serde_json::Value = serde_json::from_str(audited.expect(&text)).unwrap();
        assert!(audited["median"].as_f64().unwrap() > 0.0, "{audited}");
    }
}

/// Opens a terminal and returns the ends of the test and of the program.
fn terminal(columns: u16) -> (File, OwnedFd) {
    let (mut ours, mut theirs) = (0, 0);
    let size = libc::winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let null = std::ptr::null_mut();
    // SAFETY: the pointers are to locals, or null where the call allows it.
    assert_eq!(unsafe { libc::openpty(&mut ours, &mut theirs, null, null.cast(), &size) }, 0);
    // SAFETY: the call has just opened both, and nobody else owns them.
    unsafe { (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) }
}

#[test]
fn progress_fits_into_40_columns() {
    let _turn = alone();
    let (mut ours, theirs) = terminal(40);
    let mut child = bench(&["memory", "--case", "accounts", "--contender", "thiscpu"])
        .args(TINY)
        .stdout(Stdio::null())
        .stderr(theirs)
        .env("TERM", "xterm")
        .spawn()
        .unwrap();
    let mut seen = Vec::new();
    let mut chunk = [0; 4096];
    // Reading fails once the program, the only other holder, has ended.
    while let Ok(count @ 1..) = ours.read(&mut chunk) {
        seen.extend_from_slice(&chunk[..count]);
    }
    assert!(child.wait().unwrap().success());
    let text = String::from_utf8_lossy(&seen);
    let plain = without_escapes(&text);
    assert!(plain.contains("memory accounts"), "{plain:?}");
    for line in plain.split(['\r', '\n']) {
        assert!(line.chars().count() <= 40, "{line:?} is too wide");
    }
}

/// Removes terminal control sequences.
fn without_escapes(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    let rest = parts.map(|part| part.split_once(|c: char| c.is_ascii_alphabetic()));
    first + &rest.flatten().map(|(_, after)| after).collect::<String>()
}

//! The demo, the manual, and the program's manners: output that cannot be written, closed pipes.

use std::fs::{self, File};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use thiscpu_test_support::{is_quick, terminal, text};

fn thiscpu(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thiscpu"));
    command.args(args).stdin(Stdio::null()).env_remove("THISCPU_TIER");
    command
}

fn run(args: &[&str]) -> Output {
    thiscpu(args).output().unwrap()
}

/// Opens a file that cannot be written to.
fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

#[test]
fn demo_shows_each_scene_with_page_and_benchmark() {
    if is_quick() {
        return;
    }
    let output = run(&["demo", "--seconds", "1"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    for (scene, page, workload) in [
        ("Counters", "docs/design/counter.md", "bench add,sum"),
        ("Limits", "docs/design/budget.md", "bench budget"),
        ("Ledgers", "docs/design/ledger.md", "bench ledger"),
        ("Objects", "docs/design/slab.md", "bench alloc"),
    ] {
        for part in [scene, page, workload] {
            assert!(shown.contains(part), "{part:?} is not in {shown}");
        }
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        assert!(fs::exists(format!("{root}/{page}")).unwrap(), "{page} does not exist");
    }
    assert!(shown.contains("0 of "), "no exact sums in {shown}");
    assert!(shown.contains("cargo run --release -p thiscpu-bench"), "{shown}");
}

#[test]
fn demo_fits_into_40_columns() {
    if is_quick() {
        return;
    }
    let (ours, theirs) = terminal::open(40);
    let mut child = thiscpu(&["demo", "--seconds", "1"])
        .stdout(theirs.try_clone().unwrap())
        .stderr(theirs)
        .env("TERM", "xterm")
        .spawn()
        .unwrap();
    let shown = terminal::text(ours);
    assert!(child.wait().unwrap().success(), "{shown}");
    assert!(shown.contains("one atomic: "), "no progress in {shown}");
    for line in shown.split(['\r', '\n']) {
        assert!(line.chars().count() <= 40, "{line:?} is too wide");
    }
}

#[test]
fn demo_runs_in_each_tier() {
    if is_quick() {
        return;
    }
    for tier in ["rseq-cpu", "atomic"] {
        let output = thiscpu(&["demo", "--seconds", "1"]).env("THISCPU_TIER", tier).output();
        let output = output.unwrap();
        let said = text(&output.stderr);
        // A machine without rseq has no such tier, and says so.
        if tier != "atomic" && said.contains("not available") {
            continue;
        }
        assert_eq!(output.status.code(), Some(0), "{tier}: {said}");
        assert!(text(&output.stdout).contains(&format!("tier {tier}")));
    }
}

#[test]
fn demo_refuses_lengths_out_of_range() {
    for seconds in ["0", "0.5", "601", "NaN", "inf", "-1"] {
        let output = run(&["demo", &format!("--seconds={seconds}")]);
        assert_eq!(output.status.code(), Some(2), "{seconds}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains("give 1 to 600"), "{}", text(&output.stderr));
    }
}

#[test]
fn commands_fail_when_output_cannot_be_written() {
    for (args, status) in [
        ("doctor", 1),
        ("doctor --json", 1),
        ("completions bash", 1),
        ("demo", 1),
        ("--help", 1),
        ("--version", 1),
        ("help", 1),
        ("doctor --help", 1),
        ("run --help", 125),
    ] {
        let mut command = thiscpu(&args.split(' ').collect::<Vec<_>>());
        let output = command.stdout(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{args}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains("cannot write to standard output"), "{args}");
    }
}

#[test]
fn commands_keep_exit_status_when_errors_cannot_be_written() {
    for (args, status) in [("doctor", 1), ("doctor --nope", 2), ("run nope", 127), ("run", 125)] {
        let mut command = thiscpu(&args.split(' ').collect::<Vec<_>>());
        let status_seen = command.stdout(full()).stderr(full()).status().unwrap();
        assert_eq!(status_seen.code(), Some(status), "{args}");
    }
}

#[test]
fn commands_are_quiet_when_pipe_is_closed() {
    let began = Instant::now();
    for args in [&["doctor"][..], &["completions", "zsh"], &["demo", "--seconds", "60"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = thiscpu(args).stdout(writer).env("THISCPU_TIER", "atomic").output().unwrap();
        let status = if args[0] == "doctor" { 3 } else { 0 };
        assert_eq!(output.status.code(), Some(status), "{args:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "", "{args:?}");
    }
    // No scene of the demo ran, of which each takes 15 seconds.
    assert!(began.elapsed() < Duration::from_secs(15));
}

#[test]
fn completions_and_man_pages_name_each_command() {
    for shell in ["bash", "zsh", "fish"] {
        let output = run(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0));
        for command in ["demo", "doctor", "run"] {
            assert!(text(&output.stdout).contains(command), "{shell}: {command}");
        }
        // Installers use it; it is hidden.
        assert!(!text(&output.stdout).contains("Write man pages"), "{shell}");
        assert!(!text(&output.stdout).contains("thiscpu,man"), "{shell}");
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    assert_eq!(run(&["man", path]).status.code(), Some(0));
    for page in ["thiscpu", "thiscpu-demo", "thiscpu-doctor", "thiscpu-run", "thiscpu-segment-ls"] {
        let page = format!("{page}.1");
        let text = fs::read_to_string(directory.path().join(&page)).unwrap();
        let footer = concat!("\"thiscpu ", env!("CARGO_PKG_VERSION"), "\"");
        assert!(text.contains(".TH") && text.contains(footer), "{page}: {text}");
    }
    let missing = run(&["man", "/no/such/directory"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing.stderr).contains("/no/such/directory"));
}

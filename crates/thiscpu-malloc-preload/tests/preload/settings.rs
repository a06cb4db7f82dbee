//! `THISCPU_MALLOC`: what its words do, where the table goes, and who is not listened to.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fixture::{compile, library, run, text};

const STATS: [(&str, &str); 1] = [("THISCPU_MALLOC", "stats")];

fn ends() -> Option<PathBuf> {
    compile("ends.c", &[])
}

fn tables(said: &str) -> usize {
    said.lines().filter(|line| line.starts_with("thiscpu-malloc, process ")).count()
}

#[test]
fn stats_table_is_printed_at_exit_only() {
    let Some(program) = ends() else { return };
    for (how, status, expected) in
        [("exit", 3, 1), ("_exit", 3, 0), ("children", 0, 2), ("close", 0, 1)]
    {
        let output = run(&program, &[how], &STATS);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{how}: {said}");
        assert_eq!(tables(&said), expected, "{how}: {said}");
        assert!(output.stdout.is_empty());
        let silent = run(&program, &[how], &[]);
        assert_eq!((silent.status, text(&silent.stderr).as_str()), (output.status, ""), "{how}");
    }
    let table = text(&run(&program, &["exit"], &STATS).stderr);
    for part in [
        "(ends-c)",
        "allocations",
        "hit rate",
        "trades",
        "slabs",
        "(hit rate: ",
        "at the peaks",
        "at the end",
    ] {
        assert!(table.contains(part), "{part:?} is not in {table}");
    }
}

#[test]
fn stats_table_is_not_written_to_other_files() {
    let Some(program) = ends() else { return };
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("none-of-the-allocators-business");
    let output = run(&program, &["reopen", file.to_str().expect("plain text")], &STATS);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(fs::read_to_string(&file).unwrap(), "");
}

#[test]
fn unknown_words_warn() {
    let Some(program) = ends() else { return };
    let output = run(&program, &["exit"], &[("THISCPU_MALLOC", "harden, statistics,,fast")]);
    assert_eq!(output.status.code(), Some(3));
    let said = text(&output.stderr);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    for (line, word) in lines.iter().zip(["statistics", "fast"]) {
        assert!(line.contains("warning") && line.contains(&format!(": {word} ")), "{said}");
    }
}

/// Copies what is to be run, in another process: a file that this one had open for writing could still be held, so that
/// it could not be run, by a program that another test is starting.
fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").args([from, to]).status().unwrap().success());
}

/// A program with more rights than its user takes no words from them. The loader would preload nothing there, so the
/// library is linked.
#[test]
fn privileged_program_ignores_environment() {
    const NOBODY: u32 = 65_534;
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("skipped: only root can make a program that runs as somebody else");
    }
    let place = std::env::temp_dir().join(format!("thiscpu-privileged-{}", std::process::id()));
    fs::create_dir_all(&place).unwrap();
    fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
    let linked = place.join("libthiscpu_malloc.so");
    copy(library(), &linked);
    let rpath = format!("-Wl,-rpath,{}", place.display());
    let Some(program) = compile("linked.c", &[linked.to_str().expect("plain text"), &rpath]) else {
        return;
    };
    let privileged = place.join("linked");
    copy(&program, &privileged);
    let said = |owner, mode| {
        chown(&privileged, Some(owner), Some(owner)).unwrap();
        fs::set_permissions(&privileged, fs::Permissions::from_mode(mode)).unwrap();
        let mut command = Command::new(&privileged);
        let output = command.envs(STATS).env("THISCPU_TIER", "fast").output().unwrap();
        (text(&output.stdout), text(&output.stderr))
    };
    let (plain, privileged) = (said(0, 0o755), said(NOBODY, 0o4755));
    fs::remove_dir_all(&place).unwrap();
    assert_eq!(plain.0, "not privileged\n");
    assert!(plain.1.contains("THISCPU_TIER=fast") && tables(&plain.1) == 1, "{}", plain.1);
    match privileged.0.as_str() {
        "privileged\n" => assert_eq!(privileged.1, ""),
        _ => eprintln!("skipped: the file system of {} has no setuid programs", place.display()),
    }
}

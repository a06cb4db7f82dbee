//! `THISCPU_MALLOC`: its words, where the table is written, and privileged programs.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fixture::{compile, library, run, text};

const STATS: [(&str, &str); 1] = [("THISCPU_MALLOC", "stats")];

fn exits() -> Option<PathBuf> {
    compile("exits.c", &[])
}

fn tables(said: &str) -> usize {
    said.lines().filter(|line| line.starts_with("thiscpu-malloc, process ")).count()
}

#[test]
fn stats_table_is_printed_at_exit_only() {
    let Some(program) = exits() else { return };
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
        "(exits-c)",
        "allocations",
        "hit rate",
        "trades",
        "slabs",
        "(hit rate: ",
        "at the peaks",
        "at the end",
    ] {
        assert!(table.contains(part), "{part:?} is missing in {table}");
    }
}

#[test]
fn stats_table_is_not_written_to_other_files() {
    let Some(program) = exits() else { return };
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("file-of-the-program");
    let output = run(&program, &["reopen", file.to_str().expect("the path is UTF-8")], &STATS);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(fs::read_to_string(&file).unwrap(), "");
}

#[test]
fn unknown_words_warn() {
    let Some(program) = exits() else { return };
    let output = run(&program, &["exit"], &[("THISCPU_MALLOC", "harden, statistics,,fast")]);
    assert_eq!(output.status.code(), Some(3));
    let said = text(&output.stderr);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    for (line, word) in lines.iter().zip(["statistics", "fast"]) {
        assert!(line.contains("warning") && line.contains(&format!(": {word} ")), "{said}");
    }
}

#[test]
fn bad_values_warn_and_change_nothing() {
    let Some(program) = exits() else { return };
    for (list, wrong, is_on) in [
        ("stats=", "stats=", false),
        ("stats=xml", "stats=xml", false),
        ("stats=TABLE", "stats=TABLE", false),
        ("stats=table=off", "stats=table=off", false),
        ("stats= table", "stats= table", false),
        ("=table", "=table", false),
        ("harden=maybe, stats=table", "harden=maybe", true),
        ("stats,stats=xml", "stats=xml", true),
    ] {
        let output = run(&program, &["exit"], &[("THISCPU_MALLOC", list)]);
        assert_eq!(output.status.code(), Some(3));
        let said = text(&output.stderr);
        let warning = format!("thiscpu: warning: THISCPU_MALLOC: {wrong} is ignored: ");
        assert_eq!(said.lines().filter(|line| line.contains("warning")).count(), 1, "{said}");
        assert!(said.starts_with(&warning), "{list}: {said}");
        assert_eq!(tables(&said), usize::from(is_on), "{list}: {said}");
    }
}

#[test]
fn last_value_of_a_setting_counts() {
    let Some(program) = exits() else { return };
    for (list, is_on) in [("stats,stats=off", false), ("stats=off,harden, stats", true)] {
        let said = text(&run(&program, &["exit"], &[("THISCPU_MALLOC", list)]).stderr);
        assert_eq!(tables(&said), usize::from(is_on), "{list}: {said}");
    }
}

/// Checks `thiscpu_malloc_set`, which a program may find or not.
#[test]
fn c_programs_change_settings() {
    let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include");
    let Some(program) = compile("set.c", &[include]) else { return };
    let output = run(&program, &[], &[]);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!((text(&output.stdout).as_str(), tables(&said)), ("done\n", 1), "{said}");
}

/// Runs a shell script, and returns the output and the errors of all its processes.
fn run_script(script: &str, environment: &[(&str, &str)]) -> (String, String) {
    let output = run(Path::new("/bin/sh"), &["-c", script], environment);
    assert!(output.status.success(), "{}: {}", output.status, text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

/// Starts ten commands, and prints the settings that the last one inherits.
const SCRIPT: &str = r#"
    for i in 1 2 3 4 5; do /bin/true; ls / >/dev/null; done
    sh -c 'echo "tier=$THISCPU_TIER words=$THISCPU_MALLOC"'
    exit 0
"#;

#[test]
fn wrong_tier_warns_once_per_process_tree() {
    // Two trees, because the first must not affect the second.
    for _ in 0..2 {
        let (out, said) = run_script(SCRIPT, &[("THISCPU_TIER", "bogus")]);
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains("warning") && said.contains("THISCPU_TIER=bogus"), "{said}");
        assert_eq!(out, "tier=?ogus words=\n");
    }
    let (out, said) = run_script(SCRIPT, &[("THISCPU_TIER", "atomic")]);
    assert_eq!((out.as_str(), said.as_str()), ("tier=atomic words=\n", ""));
}

#[test]
fn unknown_words_warn_once_per_process_tree() {
    for (words, kept, warnings) in [
        ("bogus", "", 1),
        ("bogus, stats,fast,,harden", " stats,harden", 2),
        ("stats,bogus", "stats", 1),
        (" stats ,", " stats ,", 0),
        ("stats=bogus,stats,harden=bogus", "stats", 2),
    ] {
        let (out, said) = run_script(SCRIPT, &[("THISCPU_MALLOC", words)]);
        let warned = said.lines().filter(|line| line.contains("warning")).count();
        assert_eq!(warned, warnings, "{words}: {said}");
        assert_eq!(out, format!("tier= words={kept}\n"), "{words}");
        // Of the commands: shells may end without their exit handlers.
        assert_eq!(tables(&said) >= 10, kept.contains("stats"), "{words}: {said}");
    }
}

/// Checks parents that start many children, and one that the loader has started.
#[test]
fn wrong_settings_warn_once_whatever_the_parent_is() {
    // The loader's path, as a program names it.
    let find = "tr '\\0' '\\n' </bin/sh | grep -a -m 1 '^/lib.*/ld-linux'";
    let found = Command::new("/bin/sh").args(["-c", find]).output().unwrap();
    let loader = text(&found.stdout).trim().to_owned();
    let shell = "for i in 1 2 3 4 5 6 7 8 9 10; do /bin/true; ls / >/dev/null; done; exit 0";
    let python = "import subprocess\nfor i in range(40): subprocess.run(['/bin/true'])";
    let parents: [&[&str]; 4] = [
        &["/bin/dash", "-c", shell],
        &["/bin/bash", "-c", shell],
        &["/usr/bin/python3", "-c", python],
        &[&loader, "/bin/sh", "-c", shell],
    ];
    for parent in parents {
        if !Path::new(parent[0]).exists() {
            eprintln!("skipped: {} is missing", parent[0]);
            continue;
        }
        let environment = [("THISCPU_MALLOC", "stats=bogus"), ("THISCPU_TIER", "bogus")];
        let output = run(Path::new(parent[0]), &parent[1..], &environment);
        let said = text(&output.stderr);
        assert!(output.status.success(), "{parent:?}: {said}");
        for wrong in ["THISCPU_MALLOC: stats=bogus is", "THISCPU_TIER=bogus"] {
            let warned = said.lines().filter(|line| line.contains(wrong)).count();
            assert_eq!(warned, 1, "{parent:?}: {said}");
        }
        assert_eq!(said.lines().count(), 2, "{parent:?}: {said}");
    }
}

/// Copies a program in another process.
///
/// If this process wrote the file, a child that another test is forking could still hold it open
/// for writing, and then it could not be executed.
fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").args([from, to]).status().unwrap().success());
}

/// Checks that a setuid program ignores its user's settings.
///
/// The loader does not preload into such programs, so the library is linked.
#[test]
fn privileged_program_ignores_environment() {
    const NOBODY: u32 = 65_534;
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("skipped: only root can create a program that runs as another user");
    }
    let directory = std::env::temp_dir().join(format!("thiscpu-privileged-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
    let linked = directory.join("libthiscpu_malloc.so");
    copy(library(), &linked);
    let rpath = format!("-Wl,-rpath,{}", directory.display());
    let Some(program) = compile("linked.c", &[linked.to_str().expect("the path is UTF-8"), &rpath])
    else {
        return;
    };
    let privileged = directory.join("linked");
    copy(&program, &privileged);
    let said = |owner, mode| {
        chown(&privileged, Some(owner), Some(owner)).unwrap();
        fs::set_permissions(&privileged, fs::Permissions::from_mode(mode)).unwrap();
        let mut command = Command::new(&privileged);
        let output = command.envs(STATS).env("THISCPU_TIER", "fast").output().unwrap();
        (text(&output.stdout), text(&output.stderr))
    };
    let (plain, privileged) = (said(0, 0o755), said(NOBODY, 0o4755));
    fs::remove_dir_all(&directory).unwrap();
    assert_eq!(plain.0, "not privileged\n");
    assert!(plain.1.contains("THISCPU_TIER=fast") && tables(&plain.1) == 1, "{}", plain.1);
    match privileged.0.as_str() {
        "privileged\n" => assert_eq!(privileged.1, ""),
        _ => {
            eprintln!("skipped: the file system of {} ignores the setuid bit", directory.display())
        }
    }
}

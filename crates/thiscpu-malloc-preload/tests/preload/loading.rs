//! Libraries that are loaded with `RTLD_DEEPBIND` or into another namespace.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::fixture::{compile, run, text};

/// The program's `RUNPATH`, relative to itself, and the plugin's name there.
const DIRECTORY: &str = "deepbind-plugins";
const NAME: &str = "libdeepbind_plugin.so";

/// Returns the program, and the path of its plugin, which lies in the program's `RUNPATH`.
fn program() -> Option<(PathBuf, PathBuf)> {
    let runpath = format!("-Wl,--enable-new-dtags,-rpath,$ORIGIN/{DIRECTORY}");
    let program = compile("deepbind.cpp", &["-std=c++17", &runpath])?;
    let built = compile("deepbind_plugin.cpp", &["-std=c++17", "-shared", "-fPIC"])?;
    let directory = program.with_file_name(DIRECTORY);
    std::fs::create_dir_all(&directory).unwrap();
    // A link, because another test may be loading the file that a copy would write to.
    let plugin = directory.join(NAME);
    let new = directory.join(format!("{NAME}-{:?}", std::thread::current().id()));
    std::fs::hard_link(&built, &new).unwrap();
    std::fs::rename(&new, &plugin).unwrap();
    let _ = std::fs::remove_file(&new);
    Some((program, plugin))
}

fn load(program: &Path, plugin: &Path, how: &str) -> (Output, String) {
    let output = run(program, &[plugin.to_str().expect("the path is UTF-8"), how], &[]);
    let said = text(&output.stderr);
    (output, said)
}

fn assert_done(output: &Output, said: &str, how: &str) {
    assert!(output.status.success(), "{how}: {}\n{said}", output.status);
    assert_eq!(text(&output.stdout), "done\n", "{how}: {said}");
}

#[test]
fn deepbind_is_dropped_with_one_warning() {
    let Some((program, plugin)) = program() else { return };
    for how in ["deep", "deep in base", "global", "forks"] {
        let (output, said) = load(&program, &plugin, how);
        assert_done(&output, &said, how);
        assert_eq!(said.lines().count(), 1, "{how}: {said}");
        for part in ["thiscpu: warning: RTLD_DEEPBIND is ignored", plugin.to_str().unwrap()] {
            assert!(said.contains(part), "{how}: {said}");
        }
    }
    let (output, said) = load(&program, &plugin, "questions");
    assert_done(&output, &said, "questions");
    assert_eq!(said, "");
}

/// Checks that the loader still takes the program for the caller of `dlopen`.
#[test]
fn deepbind_keeps_runpath_of_caller() {
    let Some((program, _)) = program() else { return };
    for how in ["deep", "deep in base"] {
        let (output, said) = load(&program, Path::new(NAME), how);
        assert_done(&output, &said, how);
    }
}

#[test]
fn dlmopen_warns_and_reports_name_it() {
    let Some((program, plugin)) = program() else { return };
    let warning = "thiscpu: warning: dlmopen: libraries in a new namespace have a malloc";
    let (output, said) = load(&program, &plugin, "namespace");
    assert_done(&output, &said, "namespace");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with(warning), "{said}");

    let (output, said) = load(&program, &plugin, "namespace, wrong free");
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{said}");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 3, "{said}");
    for (line, part) in lines.iter().zip([warning, "invalid free", "(dlmopen)"]) {
        assert!(line.contains(part), "{said}");
    }
}

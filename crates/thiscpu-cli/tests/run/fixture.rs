//! Runs programs on the library, and compiles small ones.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use thiscpu_test_support::{in_ci, preloaded_malloc, text};

pub(crate) const THISCPU: &str = env!("CARGO_BIN_EXE_thiscpu");

/// Waits until no other test of this file runs.
///
/// Between fork and exec, a child holds all files that other tests have open for writing, and Linux
/// refuses to execute a file that is open for writing.
pub(crate) fn exclusive() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn run(args: &[&str]) -> Command {
    preloaded_malloc();
    let mut command = Command::new(THISCPU);
    command.arg("run").args(args).stdin(Stdio::null());
    for variable in ["LD_PRELOAD", "THISCPU_MALLOC", "THISCPU_TIER"] {
        command.env_remove(variable);
    }
    command
}

/// Creates an empty directory for one test.
pub(crate) fn directory(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("run").join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

/// Writes an executable file and returns its path.
pub(crate) fn write(path: &Path, content: &[u8]) -> String {
    fs::write(path, content).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().expect("a UTF-8 path").to_owned()
}

pub(crate) fn tables(output: &Output) -> usize {
    text(&output.stderr).lines().filter(|line| line.starts_with("thiscpu-malloc, process ")).count()
}

/// Asserts that the command ends with `status`, gives the reasons, and runs nothing.
pub(crate) fn assert_refused(mut command: Command, status: i32, reasons: &[&str]) {
    let output = command.output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{command:?}: {said}");
    assert!(output.stdout.is_empty(), "{command:?}: {}", text(&output.stdout));
    for reason in reasons {
        assert!(said.contains(reason), "{command:?}: {reason:?} is not in {said}");
    }
}

/// Returns whether `cc` compiled the program; a failure in CI is an error.
pub(crate) fn compile(source: &Path, program: &Path, kind: &str) -> bool {
    compile_by("cc", source, program, &[kind], "gcc libc6-dev")
}

/// Returns whether a compiler compiled the program; a failure in CI is an error.
pub(crate) fn compile_by(
    compiler: &str,
    source: &Path,
    program: &Path,
    options: &[&str],
    packages: &str,
) -> bool {
    let mut command = Command::new(compiler);
    let status = command.args(options).arg("-o").arg(program).arg(source).status();
    if status.is_ok_and(|status| status.success()) {
        return true;
    }
    let why = format!("{compiler} cannot link with {options:?}: apt-get install {packages}");
    assert!(!in_ci(), "{why}");
    eprintln!("skipped: {why}");
    false
}

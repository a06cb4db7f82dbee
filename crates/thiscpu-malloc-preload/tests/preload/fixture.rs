//! Builds the library and the programs that are run with it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

use thiscpu_test_support::program;
pub(crate) use thiscpu_test_support::{preloaded_malloc as library, text};

/// Compiles one of `programs`, once, and returns its path, or `None` if there is no compiler.
pub(crate) fn compile(source: &str, options: &[&str]) -> Option<PathBuf> {
    static COMPILED: Mutex<BTreeMap<String, Option<PathBuf>>> = Mutex::new(BTreeMap::new());
    // A test that panicked with the lock held has not added an entry, so the map is valid.
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    let name = [&[source], options].concat().concat().replace(['.', '/', ','], "-");
    compiled.entry(name).or_insert_with_key(|name| run_compiler(source, name, options)).clone()
}

fn run_compiler(source: &str, name: &str, options: &[&str]) -> Option<PathBuf> {
    let compiler = if source.ends_with(".cpp") { "c++" } else { "cc" };
    if !thiscpu_test_support::has(compiler, "g++") {
        return None;
    }
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/preload/programs");
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut compile = Command::new(compiler);
    // Otherwise the compiler may remove pairs of malloc and free.
    compile.args(["-O1", "-g", "-fno-builtin", "-pthread", "-w", "-o"]);
    compile.arg(&output).arg(programs.join(source));
    compile.args(options).args(["-ldl"]);
    assert!(compile.status().expect("the compiler runs").success(), "{source}");
    Some(output)
}

/// The environments for programs: each tier, and one in which glibc registers no thread.
pub(crate) const ENVIRONMENTS: [&[(&str, &str)]; 5] = [
    &[],
    &[("THISCPU_TIER", "rseq-cid")],
    &[("THISCPU_TIER", "rseq-cpu")],
    &[("THISCPU_TIER", "atomic")],
    &[("GLIBC_TUNABLES", "glibc.pthread.rseq=0")],
];

/// Runs `program` with the library preloaded.
pub(crate) fn run(program: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    for variable in ["THISCPU_TIER", "THISCPU_MALLOC", "GLIBC_TUNABLES"] {
        command.env_remove(variable);
    }
    command.env("LD_PRELOAD", library()).envs(environment.iter().copied());
    program::output(&mut command).expect("the program starts")
}

/// Checks that `program` succeeds in every environment and writes exactly `expected`.
pub(crate) fn passes(program: &Path, arguments: &[&str], expected: &str) {
    for environment in ENVIRONMENTS {
        let output = run(program, arguments, environment);
        let said = text(&output.stderr);
        assert!(output.status.success(), "{environment:?}: {}\n{said}", output.status);
        assert_eq!(text(&output.stdout), expected, "{environment:?}: {said}");
        // If this machine does not have the tier, there is a warning about that.
        let is_warning = |line: &str| line.starts_with("thiscpu: warning");
        assert!(said.lines().all(is_warning), "{environment:?}: {said}");
    }
}

/// Compiles a program, and checks that it writes `done` in every environment.
pub(crate) fn is_done(source: &str, options: &[&str]) {
    if let Some(program) = compile(source, options) {
        passes(&program, &[], "done\n");
    }
}

//! What is built for the tests: the library, and the programs that are run with it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Where `libthiscpu_malloc.so` is, as the same `cargo build` makes it that users are told; beside it is the profile's
/// other output.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        thiscpu_test_support::build(env!("CARGO_PKG_NAME")).join("libthiscpu_malloc.so")
    })
}

/// One of `programs`, compiled once; `None` if there is no compiler.
pub(crate) fn compile(source: &'static str, options: &[&str]) -> Option<PathBuf> {
    static COMPILED: Mutex<BTreeMap<&str, Option<PathBuf>>> = Mutex::new(BTreeMap::new());
    // A test that failed meanwhile has left nothing half done: what it would have entered is not there.
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    compiled.entry(source).or_insert_with(|| compile_anew(source, options)).clone()
}

fn compile_anew(source: &str, options: &[&str]) -> Option<PathBuf> {
    let compiler = if source.ends_with(".cpp") { "c++" } else { "cc" };
    if !thiscpu_test_support::has(compiler, "g++") {
        return None;
    }
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/preload/programs");
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join(source.replace('.', "-"));
    let mut compile = Command::new(compiler);
    // Without built-in functions the compiler leaves out no pair of malloc and free.
    compile.args(["-O1", "-g", "-fno-builtin", "-pthread", "-w", "-o"]);
    compile.arg(&output).arg(programs.join(source));
    compile.args(options).args(["-ldl"]);
    assert!(compile.status().expect("the compiler runs").success(), "{source}");
    Some(output)
}

/// What a program is run in: each tier, and where the library has to register its threads.
pub(crate) const ENVIRONMENTS: [&[(&str, &str)]; 5] = [
    &[],
    &[("THISCPU_TIER", "rseq-cid")],
    &[("THISCPU_TIER", "rseq-cpu")],
    &[("THISCPU_TIER", "atomic")],
    &[("GLIBC_TUNABLES", "glibc.pthread.rseq=0")],
];

/// Runs `program` with the library.
pub(crate) fn run(program: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    for variable in ["THISCPU_TIER", "THISCPU_MALLOC", "GLIBC_TUNABLES"] {
        command.env_remove(variable);
    }
    command.env("LD_PRELOAD", library()).envs(environment.iter().copied());
    command.output().expect("it can be started")
}

/// What a program wrote.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs `program` in every environment; it has to end well and to write just `expected`.
pub(crate) fn passes(program: &Path, arguments: &[&str], expected: &str) {
    for environment in ENVIRONMENTS {
        let output = run(program, arguments, environment);
        let said = text(&output.stderr);
        assert!(output.status.success(), "{environment:?}: {}\n{said}", output.status);
        assert_eq!(text(&output.stdout), expected, "{environment:?}: {said}");
        // A tier that this machine does not have is said to be missing, and no more.
        let is_warning = |line: &str| line.starts_with("thiscpu: warning");
        assert!(said.lines().all(is_warning), "{environment:?}: {said}");
    }
}

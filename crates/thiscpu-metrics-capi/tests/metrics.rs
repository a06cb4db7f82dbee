//! Compiles and runs programs in C that use the library as its users do.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use thiscpu_test_support::{build, has, preloaded_malloc};

/// Builds both libraries, and returns a directory with the names that programs look for.
fn libraries() -> &'static Path {
    static LIBRARIES: OnceLock<PathBuf> = OnceLock::new();
    LIBRARIES.get_or_init(make_libraries)
}

fn make_libraries() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("metrics-capi");
    std::fs::create_dir_all(&folder).expect("a directory");
    for (package, built, name) in [
        (env!("CARGO_PKG_NAME"), "libthiscpu_metrics_capi.so", "libthiscpu_metrics.so"),
        ("thiscpu-capi", "libthiscpu_capi.so", "libthiscpu.so"),
    ] {
        let output = build(package);
        for name in [name.to_owned(), format!("{name}.0.1")] {
            let _ = std::fs::remove_file(folder.join(&name));
            symlink(output.join(built), folder.join(name)).expect("a link");
        }
    }
    folder
}

fn header() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include/thiscpu_metrics.h")
}

/// Compiles a program in C11, and runs it in each tier. All warnings are errors.
fn run_in_c(source: &Path, name: &str) {
    run_in_c_with(source, name, |_| {});
}

/// Compiles a program in C11, and runs it as `prepare` says, in each tier.
fn run_in_c_with(source: &Path, name: &str, prepare: impl Fn(&mut Command)) {
    if !has("gcc", "gcc g++") {
        return;
    }
    let (libraries, package) = (libraries(), Path::new(env!("CARGO_MANIFEST_DIR")));
    for options in [&["-std=c11"][..], &["-std=c11", "-DTHISCPU_NO_INLINE"]] {
        let program = libraries.join(format!("{name}-{}", options.len()));
        let mut compile = Command::new("gcc");
        compile.args(["-O2", "-g", "-pthread", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow"]);
        compile.args(options).args(["-D_GNU_SOURCE", "-Werror", "-o"]).arg(&program);
        compile.arg("-I").arg(package.join("include"));
        compile.arg("-I").arg(package.join("../thiscpu-capi/include"));
        compile.arg(source);
        compile.arg("-L").arg(libraries).args(["-lthiscpu_metrics", "-lthiscpu"]);
        compile.arg(format!("-Wl,-rpath,{}", libraries.display()));
        assert!(compile.status().expect("the compiler runs").success(), "{name}, {options:?}");
        for tier in ["", "rseq-cpu", "atomic"] {
            let mut run = Command::new(&program);
            prepare(run.env("THISCPU_TIER", tier));
            let output = run.output().unwrap();
            let message = String::from_utf8_lossy(&output.stderr);
            let status = output.status;
            assert!(status.success(), "{name}, {options:?}, {tier}: {status}\n{message}");
        }
    }
}

/// Makes a test of each program in C11.
macro_rules! programs_in_c {
    ($($name:ident: $source:literal,)*) => {$(
        #[test]
        fn $name() {
            let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
            run_in_c(&programs.join($source), $source);
        }
    )*};
}

programs_in_c! {
    series_work_from_c: "metrics.c",
    buckets_groups_and_exemplars_work_from_c: "options.c",
    structures_are_shown_from_c: "structures.c",
    invalid_arguments_are_reported_as_statuses: "arguments.c",
}

/// Shows the preloaded allocator, and no bytes if there is none.
#[test]
fn malloc_is_shown_from_c() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/malloc.c");
    run_in_c(&source, "malloc");
    run_in_c_with(&source, "preloaded-malloc", |run| {
        run.arg("preloaded").env("LD_PRELOAD", preloaded_malloc());
    });
}

/// Compiles and runs the examples in the documents that use this library.
#[test]
fn examples_in_documents_run() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/c.md");
    let text = std::fs::read_to_string(page).expect("a page");
    let examples = text.split("\n```c\n").skip(1).filter_map(|rest| rest.split_once("\n```\n"));
    let examples = examples.filter(|(code, _)| code.contains("<thiscpu_metrics.h>"));
    let mut count = 0;
    for (code, _) in examples {
        let name = format!("example-{count}.c");
        let source = libraries().join(&name);
        std::fs::write(&source, format!("{code}\n")).expect("a file");
        run_in_c(&source, &name);
        count += 1;
    }
    assert!(count > 0, "no example");
}

#[test]
fn header_compiles_as_cpp() {
    if !has("g++", "gcc g++") {
        return;
    }
    let mut cpp = Command::new("g++");
    cpp.args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++"]);
    let capi = Path::new(env!("CARGO_MANIFEST_DIR")).join("../thiscpu-capi/include");
    cpp.arg("-I").arg(capi).arg(header());
    assert!(cpp.status().expect("the compiler runs").success());
}

#[test]
fn library_exports_exactly_the_declared_functions() {
    if !has("nm", "binutils") {
        return;
    }
    let text = std::fs::read_to_string(header()).expect("the header");
    let is_function =
        |line: &&str| ["thiscpu_metrics_status ", "const "].iter().any(|it| line.starts_with(it));
    let lines = text.lines().filter(is_function);
    let names = lines.filter_map(|line| line.split_once('(')?.0.rsplit([' ', '*']).next());
    let declared: BTreeSet<String> = names.map(str::to_owned).collect();
    let library = libraries().join("libthiscpu_metrics.so");
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output().unwrap();
    let symbols = String::from_utf8(output.stdout).expect("UTF-8");
    let exported = symbols.lines().filter_map(|line| line.rsplit(' ').next());
    assert_eq!(exported.map(str::to_owned).collect::<BTreeSet<_>>(), declared);
    assert!(declared.len() > 20, "{declared:?}");
}

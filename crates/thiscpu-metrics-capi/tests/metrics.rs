//! Compiles and runs a program in C and C++ that uses the library as its users do.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use thiscpu_test_support::{build, has};

/// Builds both libraries, and returns a directory with the names that programs look for.
fn libraries() -> PathBuf {
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

#[test]
fn series_work_from_c_and_cpp() {
    if !has("gcc", "gcc g++") {
        return;
    }
    let (libraries, package) = (libraries(), Path::new(env!("CARGO_MANIFEST_DIR")));
    for options in [&["gcc", "-std=c11"][..], &["gcc", "-std=c11", "-DTHISCPU_NO_INLINE"]] {
        let program = libraries.join(format!("metrics-{}", options.len()));
        let mut compile = Command::new(options[0]);
        compile.args(["-O2", "-g", "-pthread", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow"]);
        compile.args(&options[1..]).args(["-D_GNU_SOURCE", "-Werror", "-o"]).arg(&program);
        compile.arg("-I").arg(package.join("include"));
        compile.arg("-I").arg(package.join("../thiscpu-capi/include"));
        compile.arg(package.join("tests/programs/metrics.c"));
        compile.arg("-L").arg(&libraries).args(["-lthiscpu_metrics", "-lthiscpu"]);
        compile.arg(format!("-Wl,-rpath,{}", libraries.display()));
        assert!(compile.status().expect("the compiler runs").success(), "{options:?}");
        for tier in ["", "rseq-cpu", "atomic"] {
            let output = Command::new(&program).env("THISCPU_TIER", tier).output().unwrap();
            let message = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{options:?}, {tier}: {}\n{message}", output.status);
        }
    }
    let mut cpp = Command::new("g++");
    cpp.args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++"]);
    cpp.arg("-I").arg(package.join("../thiscpu-capi/include")).arg(header());
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

//! From a program to its profile: `thiscpu run --heap-profile`, then this program, then pprof.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use thiscpu_test_support::{build, has};

/// Blocks of several sizes at one site, so that weights must be those of each block.
const PROGRAM: &str = r#"
#include <stdlib.h>
#include <string.h>
static void *kept[3000];
__attribute__((noinline)) void *mixed_site(size_t size) {
    void *block = malloc(size);
    memset(block, 1, size < 4096 ? size : 4096);
    return block;
}
__attribute__((noinline)) void *other_site(size_t size) {
    void *block = calloc(1, size);
    return memset(block, 1, 1);
}
int main(void) {
    int at = 0;
    for (int round = 0; round < 1000; round++) {
        for (int small = 0; small < 100; small++) free(mixed_site(64));
        kept[at++] = mixed_site(round % 100 == 0 ? 1 << 20 : 8000);
        kept[at++] = other_site(20000);
    }
    return 0;
}
"#;

/// What the sites have in use at the end, in bytes.
const MIXED: f64 = (10 << 20) as f64 + 990.0 * 8000.0;
const OTHER: f64 = 1000.0 * 20000.0;

fn directory() -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("end-to-end");
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn success(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    output
}

fn is_close(found: f64, expected: f64) -> bool {
    (found / expected - 1.0).abs() < 0.15
}

#[test]
fn profile_shows_sites_of_a_program() {
    if !has("cc", "gcc") {
        return;
    }
    let directory = directory();
    let (program, source) = (directory.join("program"), directory.join("program.c"));
    fs::write(&source, PROGRAM).unwrap();
    let compile = |level| {
        let mut compiler = Command::new("cc");
        compiler.args([level, "-g", "-fno-builtin", "-Wl,--build-id", "-o"]);
        success(compiler.arg(&program).arg(&source));
    };
    compile("-O1");
    build("thiscpu-malloc-preload");
    let thiscpu = build("thiscpu-cli").join("thiscpu");
    let heap = directory.join("heap");
    let mut run = Command::new(&thiscpu);
    run.args(["run", "--heap-profile-interval", "16384", "--heap-profile"]).arg(&heap);
    let said = success(run.arg("--").arg(&program));
    assert_eq!(text(&said.stderr), "");
    // `thiscpu profile` starts the program that lies beside it.
    let own = Path::new(env!("CARGO_BIN_EXE_thiscpu-profile"));
    let beside = thiscpu.with_file_name("thiscpu-profile");
    assert!(own.exists() && beside.exists(), "{} is not beside", beside.display());
    let profile = || {
        let mut command = Command::new(&thiscpu);
        command.arg("profile").arg(&heap);
        command
    };
    let top = text(&success(profile().args(["--top", "5"])).stdout);
    for (site, expected) in [("mixed_site", MIXED), ("other_site", OTHER)] {
        let line = top.lines().find(|line| line.ends_with(site)).unwrap_or_else(|| panic!("{top}"));
        let own = line.split_whitespace().next().unwrap().parse().unwrap();
        assert!(is_close(own, expected), "{expected}: {top}");
    }
    let folded = text(&success(profile().args(["--folded", "--space", "alloc"])).stdout);
    let line = folded.lines().find(|line| line.contains(";main;mixed_site "));
    let all: f64 =
        line.unwrap_or_else(|| panic!("{folded}")).rsplit(' ').next().unwrap().parse().unwrap();
    assert!(is_close(all, MIXED + 100_000.0 * 64.0), "{folded}");
    success(profile().arg("--svg"));
    let drawing = fs::read_to_string(directory.join("heap.svg")).unwrap();
    assert!(drawing.contains("<svg") && drawing.contains("mixed_site"));
    success(&mut profile());
    check_by_pprof(&directory.join("heap.pb.gz"), &directory);
    // The text is pprof's as well.
    check_by_pprof(&heap, &directory);

    compile("-O2");
    let output = success(profile().args(["--top", "5"]));
    let (top, said) = (text(&output.stdout), text(&output.stderr));
    assert!(top.contains(" program+0x") && !top.contains("mixed_site"), "{top}");
    assert_eq!(said.lines().count(), 1, "{said}");
    let warning = format!("thiscpu-profile: warning: {} has changed since", program.display());
    assert!(said.starts_with(&warning), "{said}");
}

/// Checks what Go's pprof makes of a profile.
fn check_by_pprof(file: &Path, directory: &Path) {
    let mut pprof = Command::new("go");
    pprof.args(["tool", "pprof", "-top", "-unit=B", "-symbolize=local"]).arg(file);
    pprof.env("HOME", directory).env("PPROF_TMPDIR", directory);
    let Ok(output) = pprof.output() else {
        return eprintln!("skipped: go is not here");
    };
    let top = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(top.contains("Type: inuse_space"), "{top}");
    for (site, expected) in [("mixed_site", MIXED), ("other_site", OTHER)] {
        let line = top.lines().find(|line| line.ends_with(site)).unwrap_or_else(|| panic!("{top}"));
        // The column of the function with its callees: flat, flat%, sum%, cum.
        let cumulated = line.split_whitespace().nth(3).unwrap().trim_end_matches('B');
        assert!(is_close(cumulated.parse().unwrap(), expected), "{expected}: {top}");
    }
}

#[test]
fn other_files_are_refused() {
    let own = env!("CARGO_BIN_EXE_thiscpu-profile");
    for file in ["/nonexistent", "/proc/self/maps"] {
        let output = Command::new(own).args([file, "--top", "3"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).starts_with("thiscpu-profile: cannot "), "{output:?}");
    }
}

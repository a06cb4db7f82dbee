//! The functions of the malloc family, as C and C++ programs see them.

use thiscpu_test_support::has;

use crate::fixture::{compile, is_done, library, run, text};
use std::process::Command;

#[test]
fn c_functions_follow_posix_and_glibc() {
    is_done("family.c", &[]);
}

#[test]
fn operator_new_throws_and_calls_handlers() {
    is_done("operators.cpp", &["-std=c++17"]);
}

/// Checks that functions that a program does not replace call those that it replaces.
#[test]
fn replaced_functions_are_called() {
    is_done("replaced_operators.cpp", &["-std=c++17"]);
    is_done("own_malloc.c", &["-rdynamic"]);
    is_done("own_malloc_aligned.cpp", &["-std=c++17", "-rdynamic"]);
}

/// Checks wrappers of `__libc_malloc` and others, which must not call the wrappers again.
#[test]
fn program_can_wrap_malloc() {
    is_done("wrapped_malloc.c", &["-rdynamic"]);
}

#[test]
fn malloc_stats_prints_the_table() {
    let Some(program) = compile("family.c", &[]) else { return };
    let output = run(&program, &["stats"], &[]);
    assert!(output.status.success());
    let table = text(&output.stderr);
    assert!(table.starts_with("thiscpu-malloc, process "), "{table}");
    assert!(table.contains("from the system"), "{table}");
    assert!(table.contains("not counted") && !table.contains("at the peaks"), "{table}");
    let counted = run(&program, &["stats"], &[("THISCPU_MALLOC", "stats")]);
    let table = text(&counted.stderr);
    assert!(table.contains("at the peaks") && !table.contains("not counted"), "{table}");
}

/// The exported symbols. There must be no others, which would replace a program's own.
const FAMILY: [&str; 53] = [
    "_ZdaPv",
    "_ZdaPvRKSt9nothrow_t",
    "_ZdaPvSt11align_val_t",
    "_ZdaPvSt11align_val_tRKSt9nothrow_t",
    "_ZdaPvm",
    "_ZdaPvmSt11align_val_t",
    "_ZdlPv",
    "_ZdlPvRKSt9nothrow_t",
    "_ZdlPvSt11align_val_t",
    "_ZdlPvSt11align_val_tRKSt9nothrow_t",
    "_ZdlPvm",
    "_ZdlPvmSt11align_val_t",
    "_Znam",
    "_ZnamRKSt9nothrow_t",
    "_ZnamSt11align_val_t",
    "_ZnamSt11align_val_tRKSt9nothrow_t",
    "_Znwm",
    "_ZnwmRKSt9nothrow_t",
    "_ZnwmSt11align_val_t",
    "_ZnwmSt11align_val_tRKSt9nothrow_t",
    "__libc_calloc",
    "__libc_free",
    "__libc_malloc",
    "__libc_memalign",
    "__libc_pvalloc",
    "__libc_realloc",
    "__libc_valloc",
    "aligned_alloc",
    "calloc",
    "cfree",
    "free",
    "free_aligned_sized",
    "free_sized",
    "mallinfo",
    "mallinfo2",
    "malloc",
    "malloc_info",
    "malloc_stats",
    "malloc_trim",
    "malloc_usable_size",
    "mallopt",
    "memalign",
    "posix_memalign",
    "pvalloc",
    "realloc",
    "reallocarray",
    "thiscpu_malloc_class_stats",
    "thiscpu_malloc_profile_start",
    "thiscpu_malloc_profile_stop",
    "thiscpu_malloc_profile_write",
    "thiscpu_malloc_stats",
    "thiscpu_malloc_stats_json",
    "valloc",
];

/// The exported functions that allocate nothing.
const OTHERS: [&str; 5] =
    ["dlmopen", "dlopen", "thiscpu_malloc_set", "thiscpu_malloc_vfork_join_1", "vfork"];

#[test]
fn only_the_family_is_exported() {
    if !has("nm", "binutils") {
        return;
    }
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library()).output().unwrap();
    assert!(output.status.success());
    let listed = text(&output.stdout);
    let mut names: Vec<&str> =
        listed.lines().filter_map(|line| line.split_whitespace().next_back()).collect();
    names.sort_unstable();
    let mut expected = [&FAMILY[..], &OTHERS[..]].concat();
    expected.sort_unstable();
    assert_eq!(names, expected);
}

//! Every stage of a process: before and after `main`, in forks, and while objects are loaded.

use thiscpu_test_support::is_quick;

use crate::fixture::{compile, is_done, passes, run, text};

/// The output of the program, one line per stage.
const LIFE: &str = "preinit without environment
constructor
thread_local
key
key again
main
atexit
destructor
";

#[test]
fn malloc_works_before_main_and_after_exit() {
    if let Some(program) = compile("life.cpp", &["-std=c++17"]) {
        passes(&program, &[], LIFE);
    }
}

/// Checks that the tier is read although the C library does not know the environment yet.
#[test]
fn invalid_tier_warns_once() {
    let Some(program) = compile("life.cpp", &["-std=c++17"]) else { return };
    // Hardening starts before the first allocation.
    for words in ["", "harden"] {
        let output = run(&program, &[], &[("THISCPU_TIER", "fast"), ("THISCPU_MALLOC", words)]);
        let said = text(&output.stderr);
        assert!(output.status.success(), "{words}: {said}");
        assert_eq!(text(&output.stdout), LIFE);
        assert_eq!(said.lines().count(), 1, "{said}");
        for part in ["warning", "THISCPU_TIER=fast names no tier", "rseq-cid", "rseq-cpu", "atomic"]
        {
            assert!(said.contains(part), "{said}");
        }
    }
}

/// Checks calls in ifunc resolvers, which run before thread-local variables are initialized.
#[test]
fn malloc_works_in_ifunc_resolvers() {
    is_done("ifunc.c", &[]);
}

#[test]
fn processes_start_while_threads_allocate() {
    is_done("processes.c", &[]);
}

/// Checks programs that keep variables on the stack, and in registers.
#[test]
fn children_of_vfork_allocate() {
    if is_quick() {
        return;
    }
    for level in ["-O0", "-O2"] {
        is_done("vforks.c", &[level]);
    }
}

#[test]
fn blocks_outlive_unloaded_objects() {
    let plugin = compile("plugin.cpp", &["-shared", "-fPIC"]);
    let (Some(program), Some(plugin)) = (compile("loading.c", &[]), plugin) else { return };
    passes(&program, &[plugin.to_str().expect("the path is UTF-8")], "done\n");
}

/// Checks a program without a C++ runtime, which could not catch an exception.
#[test]
fn operator_new_aborts_when_it_cannot_throw() {
    let Some(program) = compile("exits.c", &[]) else { return };
    let output = run(&program, &["throw"], &[]);
    assert!(!output.status.success());
    let said = text(&output.stderr);
    assert!(said.contains("cannot throw std::bad_alloc"), "{said}");
}

//! Every time of a process's life: before `main`, after it, across forks, and while objects come and go.

use crate::fixture::{compile, passes, run, text};

/// What the program says, in this order.
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

/// The first allocation is before the C library knows the environment. It is known all the same.
#[test]
fn invalid_tier_warns_once() {
    let Some(program) = compile("life.cpp", &["-std=c++17"]) else { return };
    // What is asked for besides begins before the first block.
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

/// Functions that choose others are called before thread-local memory is what it begins as.
#[test]
fn malloc_works_in_ifunc_resolvers() {
    if let Some(program) = compile("resolving.c", &[]) {
        passes(&program, &[], "done\n");
    }
}

#[test]
fn processes_start_while_threads_allocate() {
    if let Some(program) = compile("processes.c", &[]) {
        passes(&program, &[], "done\n");
    }
}

#[test]
fn blocks_outlive_unloaded_objects() {
    let plugin = compile("plugin.cpp", &["-shared", "-fPIC"]);
    let (Some(program), Some(plugin)) = (compile("loading.c", &[]), plugin) else { return };
    passes(&program, &[plugin.to_str().expect("a path of plain text")], "done\n");
}

/// Whom could operator new throw at?
#[test]
fn operator_new_aborts_when_it_cannot_throw() {
    let Some(program) = compile("ends.c", &[]) else { return };
    let output = run(&program, &["throw"], &[]);
    assert!(!output.status.success());
    let said = text(&output.stderr);
    assert!(said.contains("cannot throw std::bad_alloc"), "{said}");
}

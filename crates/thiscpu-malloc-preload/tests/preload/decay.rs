//! Memory that returns while all calls hit their lane, or while there are none.

use thiscpu_test_support::is_quick;

use crate::fixture::{compile, run, text};

/// Runs the program, which does `what` until the memory of its peak has returned.
fn returns_memory(what: &str, environment: &[(&str, &str)]) {
    if is_quick() {
        return;
    }
    let Some(program) = compile("decay.c", &["-pthread"]) else { return };
    let output = run(&program, &[what], environment);
    let said = text(&output.stderr);
    assert_eq!(text(&output.stdout), "done\n", "{what}: {}\n{said}", output.status);
}

#[test]
fn malloc_ticks() {
    returns_memory("malloc", &[]);
}

#[test]
fn realloc_ticks() {
    returns_memory("realloc", &[]);
}

#[test]
fn first_call_after_a_pause_returns_memory() {
    returns_memory("pause", &[]);
}

#[test]
fn background_thread_returns_memory_of_sleeping_program() {
    returns_memory("nothing", &[("THISCPU_MALLOC", "background_thread")]);
}

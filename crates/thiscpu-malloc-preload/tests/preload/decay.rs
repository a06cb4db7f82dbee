//! Memory that returns while all calls hit their lane, or while there are none.

use std::path::Path;
use std::thread;

use thiscpu_test_support::is_quick;

use crate::fixture::{compile, run, text};

/// Runs the program, which does `what` until the memory of its peak has returned.
fn returns_memory(program: &Path, what: &str, environment: &[(&str, &str)]) {
    let output = run(program, &[what], environment);
    let said = text(&output.stderr);
    assert_eq!(text(&output.stdout), "done\n", "{what}: {}\n{said}", output.status);
}

/// Runs all cases at once, because they sleep most of the time.
#[test]
fn ticks_pauses_and_the_background_thread_return_memory() {
    if is_quick() {
        return;
    }
    let Some(program) = &compile("decay.c", &["-pthread"]) else { return };
    thread::scope(|scope| {
        for what in ["malloc", "realloc", "pause"] {
            scope.spawn(move || returns_memory(program, what, &[]));
        }
        let background = [("THISCPU_MALLOC", "background_thread")];
        returns_memory(program, "nothing", &background);
    });
}

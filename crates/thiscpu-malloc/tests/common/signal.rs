//! Runs code in a child process and reports how the child ended.

use thiscpu_test_support::{child, memory};

/// The result of a child that could not run its test.
pub(crate) const UNTESTED: i32 = -2;

/// Returns the signal that ends a forked child that makes a call.
///
/// Returns 0 if the call returns `true`, [`UNTESTED`] if it returns `false`, and another negative
/// number if it panics. An alarm ends a child that hangs.
pub(crate) fn signal_of(call: impl FnOnce() -> bool) -> i32 {
    let status = child::status_of(|| {
        // The child must not leave a core dump.
        memory::set_limit(libc::RLIMIT_CORE, 0).expect("a limit");
        if call() { 0 } else { -UNTESTED }
    });
    match libc::WIFEXITED(status) {
        true => -libc::WEXITSTATUS(status),
        false => libc::WTERMSIG(status),
    }
}

//! Runs code in a child process and reports how the child ended.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// The result of a child that could not run its test.
pub(crate) const UNTESTED: i32 = -2;

/// Returns the signal that ends a forked child that makes a call.
///
/// Returns 0 if the call returns `true`, [`UNTESTED`] if it returns `false`, and -1 if it panics.
/// An alarm ends a child that hangs.
pub(crate) fn signal_of(call: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child only makes this call, and exits.
    match unsafe { libc::fork() } {
        0 => {
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // The child must not leave a core dump.
            // SAFETY: the structure is valid, and alarm takes an integer.
            unsafe {
                libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
                libc::alarm(60);
            }
            // This is a test's thread, so a panic that unwound further would end the child as if it
            // had succeeded.
            let status = catch_unwind(AssertUnwindSafe(call))
                .map_or(-1, |is_done| if is_done { 0 } else { UNTESTED });
            // SAFETY: _exit has no preconditions.
            unsafe { libc::_exit(-status) }
        }
        child => {
            assert!(child > 0, "fork failed");
            let mut status = 0;
            // SAFETY: `status` may be written to.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            match libc::WIFEXITED(status) {
                true => -libc::WEXITSTATUS(status),
                false => libc::WTERMSIG(status),
            }
        }
    }
}

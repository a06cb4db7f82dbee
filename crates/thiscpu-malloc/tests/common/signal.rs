//! How a child process ends that does something.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a child says which could not do what it was for.
pub(crate) const UNTESTED: i32 = -2;

/// The signal that ends a forked child which makes that call; 0 if it returns true, [`UNTESTED`] if it returns false, and -1 if it panics. A child that hangs is ended by its alarm.
pub(crate) fn signal_of(call: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child makes this call and ends.
    match unsafe { libc::fork() } {
        0 => {
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: a plain structure and numbers; what ends the child leaves no file.
            unsafe {
                libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
                libc::alarm(60);
            }
            // A panic that unwinds any further would end the child as if all was well: this is a test's thread.
            let status = catch_unwind(AssertUnwindSafe(call))
                .map_or(-1, |is_done| if is_done { 0 } else { UNTESTED });
            // SAFETY: no handlers are run.
            unsafe { libc::_exit(-status) }
        }
        child => {
            assert!(child > 0, "no child can be forked");
            let mut status = 0;
            // SAFETY: our child, which nobody else waits for.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            match libc::WIFEXITED(status) {
                true => -libc::WEXITSTATUS(status),
                false => libc::WTERMSIG(status),
            }
        }
    }
}

//! Forked children, which report by their exit status.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `body` in a forked child, which exits with its result, and returns the wait status.
///
/// If `body` panics, the child exits with 101. SIGALRM ends a child that hangs.
///
/// # Panics
///
/// If the fork fails.
pub fn status_of(body: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child has a copy of the calling thread only. It uses the C library's allocator
    // and the libraries that are tested, which support that.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: `alarm` has no preconditions.
            unsafe { libc::alarm(60) };
            // A panic that unwound further would end a test's thread, and the child with success.
            let status = catch_unwind(AssertUnwindSafe(body)).unwrap_or(101);
            // SAFETY: `_exit` has no preconditions; it skips exit handlers, which are the parent's.
            unsafe { libc::_exit(status) }
        }
        child => {
            assert!(child > 0, "fork failed");
            let mut status = -1;
            // SAFETY: `status` may be written to.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            status
        }
    }
}

/// Asserts that `body` returns true in a forked child.
#[track_caller]
pub fn assert_holds(body: impl FnOnce() -> bool) {
    assert_eq!(status_of(|| i32::from(!body())), 0, "the wait status of the child");
}

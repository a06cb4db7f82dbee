//! What ends a process, seen from outside of it.

/// The signal that ends a child which does that.
pub(crate) fn signal_of(call: impl FnOnce()) -> i32 {
    // SAFETY: the child makes this call and ends.
    match unsafe { libc::fork() } {
        0 => {
            call();
            // SAFETY: no handlers are run.
            unsafe { libc::_exit(0) }
        }
        child => {
            let mut status = 0;
            // SAFETY: our child, which nobody else waits for.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            libc::WTERMSIG(status)
        }
    }
}

//! How a child process ends that does something.

/// The signal that ends a forked child which makes that call, or 0. A child that hangs is ended by its alarm.
pub(crate) fn signal_of(call: impl FnOnce()) -> i32 {
    // SAFETY: the child makes this call and ends.
    match unsafe { libc::fork() } {
        0 => {
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: a plain structure and numbers; what ends the child leaves no file.
            unsafe {
                libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
                libc::alarm(60);
            }
            call();
            // SAFETY: no handlers are run.
            unsafe { libc::_exit(0) }
        }
        child => {
            assert!(child > 0, "no child can be forked");
            let mut status = 0;
            // SAFETY: our child, which nobody else waits for.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            match libc::WIFEXITED(status) {
                true if libc::WEXITSTATUS(status) != 0 => -1,
                true => 0,
                false => libc::WTERMSIG(status),
            }
        }
    }
}

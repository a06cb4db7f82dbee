//! Checks that calls leave `errno` alone.

/// Runs `op`, and returns whether it left the calling thread's `errno` unchanged.
pub(crate) fn is_kept(op: impl FnOnce()) -> bool {
    // No system call sets this value.
    const MARKER: i32 = 4095;
    // SAFETY: the pointer is to the calling thread's `errno`, which is valid while the thread runs.
    unsafe { libc::__errno_location().write(MARKER) };
    op();
    // SAFETY: the pointer is to the calling thread's `errno`, which is valid while the thread runs.
    unsafe { libc::__errno_location().read() == MARKER }
}

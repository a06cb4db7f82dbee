//! The calling thread's `errno`.

/// Returns `errno`.
pub fn get() -> i32 {
    // SAFETY: the pointer is to the calling thread's `errno`, which is valid while the thread runs.
    unsafe { libc::__errno_location().read() }
}

/// Sets `errno`.
pub fn set(value: i32) {
    // SAFETY: the pointer is to the calling thread's `errno`, which is valid while the thread runs.
    unsafe { libc::__errno_location().write(value) };
}

/// Runs `op`, and returns whether it left `errno` unchanged.
pub fn is_kept(op: impl FnOnce()) -> bool {
    // No system call sets this value.
    const MARKER: i32 = 4095;
    set(MARKER);
    op();
    get() == MARKER
}

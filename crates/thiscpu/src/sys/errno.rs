//! Keeping `errno` as the caller left it.
//!
//! An add may run in a signal handler that interrupts a thread between a failed system call and its
//! check of `errno`.

/// Restores `errno` when dropped.
pub struct Saved(i32);

fn location() -> *mut i32 {
    // SAFETY: the function has no preconditions.
    unsafe { libc::__errno_location() }
}

/// Returns the error number of this thread's last failed call.
pub(crate) fn last() -> i32 {
    // SAFETY: this thread's errno lives as long as the thread, and only this thread accesses it.
    unsafe { *location() }
}

/// Sets `errno`.
#[cfg(not(thiscpu_model))]
pub(crate) fn set(error: i32) {
    // SAFETY: this thread's errno lives as long as the thread, which alone accesses it.
    unsafe { *location() = error };
}

/// Saves `errno` until the returned value is dropped.
pub fn save() -> Saved {
    Saved(last())
}

impl Drop for Saved {
    fn drop(&mut self) {
        // SAFETY: this thread's errno lives as long as the thread, which alone accesses it.
        unsafe { *location() = self.0 };
    }
}

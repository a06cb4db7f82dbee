//! Keeping `errno` as the caller left it: an add may run in a signal handler, between a failed
//! system call and the look at its error.

/// Restores `errno` when dropped.
pub struct Saved(i32);

fn location() -> *mut i32 {
    // SAFETY: returns the address of this thread's errno, which lives as long as the thread.
    unsafe { libc::__errno_location() }
}

/// The error number of this thread's last failed call.
pub(crate) fn last() -> i32 {
    // SAFETY: `location` is valid and only this thread uses it.
    unsafe { *location() }
}

/// Remembers `errno` until the result is dropped.
pub fn save() -> Saved {
    Saved(last())
}

impl Drop for Saved {
    fn drop(&mut self) {
        // SAFETY: as in `last`.
        unsafe { *location() = self.0 };
    }
}

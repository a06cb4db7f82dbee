//! Sleeping until a word changes.

use core::sync::atomic::AtomicU32;

/// Sleeps while `word` holds `expected`. May return for no reason.
pub(crate) fn wait(word: &AtomicU32, expected: u32) {
    // SAFETY: the address is that of a live, aligned u32; the kernel only reads it.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            expected,
            core::ptr::null::<libc::timespec>(),
        );
    }
}

/// Wakes up to `how_many` who sleep on `word`.
pub(crate) fn wake(word: &AtomicU32, how_many: i32) {
    // SAFETY: the address is that of an aligned u32; the kernel only uses it as a name.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            how_many,
        );
    }
}

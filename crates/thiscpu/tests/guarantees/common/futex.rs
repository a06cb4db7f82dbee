//! Sleeping until another thread, or a handler on it, changes a word.

use std::sync::atomic::AtomicU32;

/// Sleeps while `word` holds `expected`; may return for no reason.
pub(crate) fn wait(word: &AtomicU32, expected: u32) {
    let forever = std::ptr::null::<libc::timespec>();
    // SAFETY: the address is that of a live, aligned word, which the kernel only reads.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, forever);
    }
}

/// Wakes those who sleep on `word`. Async-signal-safe, but for `errno`.
pub(crate) fn wake(word: &AtomicU32) {
    // SAFETY: the kernel uses the address as a name only.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX);
    }
}

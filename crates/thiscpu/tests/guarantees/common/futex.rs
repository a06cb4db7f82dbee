//! Sleeping until another thread, or its signal handler, changes a word.

use std::sync::atomic::AtomicU32;

/// Sleeps while `word` holds `expected`; spurious returns are possible.
pub(crate) fn wait(word: &AtomicU32, expected: u32) {
    let forever = std::ptr::null::<libc::timespec>();
    // SAFETY: the reference makes the address valid and aligned, and the kernel only reads it.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, forever);
    }
}

/// Wakes all threads that sleep on `word`.
///
/// Signal handlers may call it, but it may change `errno`.
pub(crate) fn wake(word: &AtomicU32) {
    // SAFETY: the kernel uses the address only as a key, and does not access the memory.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX);
    }
}

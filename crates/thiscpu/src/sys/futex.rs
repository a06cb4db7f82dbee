//! Futexes: sleeping until a word changes.

use core::ptr;
use core::sync::atomic::AtomicU32;
use core::time::Duration;

/// Sleeps while `word` holds `expected`, for at most `timeout`. May return spuriously.
pub(crate) fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    let timeout = timeout.map(|timeout| libc::timespec {
        // 136 years; a larger value might not fit.
        tv_sec: timeout.as_secs().min(1 << 32) as libc::time_t,
        tv_nsec: timeout.subsec_nanos().into(),
    });
    // SAFETY: the word is a live, aligned u32, and the timeout is null or a timespec on this stack.
    // The kernel only reads them.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            expected,
            timeout.as_ref().map_or(ptr::null(), ptr::from_ref),
        );
    }
}

/// Wakes up to `how_many` threads that sleep on `word`.
pub(crate) fn wake(word: *const AtomicU32, how_many: i32) {
    // SAFETY: the kernel takes the address as a name, and accesses nothing there.
    unsafe {
        libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, how_many);
    }
}

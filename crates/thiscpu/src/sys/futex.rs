//! Sleeping until a word changes, in one process or in several.

use core::ptr;
use core::time::Duration;

use super::atomic::AtomicU32;

/// Who sleeps on a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Threads of this process.
    Process = libc::FUTEX_PRIVATE_FLAG as isize,
    /// Threads of all processes that have mapped the file in which the word lies.
    Shared = 0,
}

/// Sleeps while `word` holds `expected`, for at most `timeout`. May return spuriously.
///
/// The word may be unmapped by now; then this returns at once.
pub(crate) fn wait(word: *const AtomicU32, expected: u32, timeout: Option<Duration>, scope: Scope) {
    let timeout = timeout.map(|timeout| libc::timespec {
        // 136 years; a larger value might not fit.
        tv_sec: timeout.as_secs().min(1 << 32) as libc::time_t,
        tv_nsec: timeout.subsec_nanos().into(),
    });
    // SAFETY: the timeout is null or a timespec on this stack. The kernel only reads it, and the
    // word, where it allows for any address.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word,
            libc::FUTEX_WAIT | scope as i32,
            expected,
            timeout.as_ref().map_or(ptr::null(), ptr::from_ref),
        );
    }
}

/// Wakes up to `how_many` threads that sleep on `word`, which may be freed memory by now.
pub(crate) fn wake(word: *const AtomicU32, how_many: i32, scope: Scope) {
    let operation = libc::FUTEX_WAKE | scope as i32;
    // SAFETY: the kernel takes the address as a name, and stores nothing there.
    unsafe { libc::syscall(libc::SYS_futex, word, operation, how_many) };
}

//! Sleeping until a word changes.

use core::ptr;
use core::sync::atomic::AtomicU32;
use core::time::Duration;

/// Sleeps while `word` holds `expected`, for at most `timeout`. May return for no reason.
pub(crate) fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    let timeout = timeout.map(|timeout| libc::timespec {
        // Longer than anything runs.
        tv_sec: timeout.as_secs().min(1 << 32) as libc::time_t,
        tv_nsec: timeout.subsec_nanos().into(),
    });
    // SAFETY: the address is that of a live, aligned u32, the other null or a timespec's; the kernel only
    // reads them.
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

/// Wakes up to `how_many` who sleep on `word`.
pub(crate) fn wake(word: *const AtomicU32, how_many: i32) {
    // SAFETY: the kernel uses the address as a name, and reads or writes nothing there.
    unsafe {
        libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, how_many);
    }
}

//! A request to end a run early, by Ctrl-C or SIGTERM.

use std::{
    sync::atomic::{AtomicI32, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use crate::signals;

/// The signal that requested an end, or 0.
///
/// Relaxed everywhere: it orders nothing, and seeing it a little late does no harm.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

extern "C" fn request(signal: i32) {
    SIGNAL.store(signal, Relaxed);
}

/// Makes the first SIGINT, and the first SIGTERM, only request an end.
///
/// The second one ends the process.
pub fn listen() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let flags = libc::SA_RESTART | libc::SA_RESETHAND;
        // If it fails the default action stays: to end the process at once.
        // SAFETY: the handler only stores to an atomic.
        let _ = unsafe { signals::install(signal, request as *const (), flags) };
    }
}

/// Returns whether an end was requested.
pub fn is_requested() -> bool {
    signal() != 0
}

/// Returns the signal that requested an end, or 0.
pub fn signal() -> i32 {
    SIGNAL.load(Relaxed)
}

/// Sleeps for `length`, or until a tenth of a second after an end was requested.
pub fn sleep(length: Duration) {
    const SLEEP_MAX: Duration = Duration::from_millis(100);
    let began = Instant::now();
    loop {
        let left = length.saturating_sub(began.elapsed());
        if left.is_zero() || is_requested() {
            return;
        }
        thread::sleep(left.min(SLEEP_MAX));
    }
}

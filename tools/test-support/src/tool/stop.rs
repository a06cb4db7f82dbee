//! A request to end a run early, by Ctrl-C or SIGTERM.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use super::signals;

/// Relaxed everywhere: a flag that orders nothing; seeing it a little late does no harm.
static REQUESTED: AtomicBool = AtomicBool::new(false);

extern "C" fn request(_signal: i32) {
    REQUESTED.store(true, Relaxed);
}

/// Makes the first SIGINT, and the first SIGTERM, only request an end.
///
/// The second one ends the process.
pub fn listen() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // If it fails the default action stays: to end the process at once.
        // SAFETY: the handler only stores to an atomic.
        let _ = unsafe { signals::install(signal, request, libc::SA_RESETHAND) };
    }
}

/// Returns whether an end was requested.
pub fn is_requested() -> bool {
    REQUESTED.load(Relaxed)
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

//! Signals that arrive at random moments.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use thiscpu_test_support::signals;

use super::{Random, scale};

/// Installs `handler` for `signal`; interrupted system calls are restarted.
pub(crate) fn handle(signal: i32, handler: extern "C" fn(i32)) {
    install(signal, handler as *const (), libc::SA_RESTART);
}

/// Installs a handler that gets the context it interrupted; system calls are restarted.
pub(crate) fn handle_with_context(
    signal: i32,
    handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void),
) {
    install(signal, handler as *const (), libc::SA_RESTART | libc::SA_SIGINFO);
}

/// Installs an empty handler that interrupts system calls.
pub(crate) fn interrupt_calls(signal: i32) {
    extern "C" fn nothing(_: i32) {}
    install(signal, nothing as *const (), 0);
}

fn install(signal: i32, handler: *const (), flags: i32) {
    // SAFETY: the handlers make only async-signal-safe calls, and the callers pass the flags that
    // fit their parameters.
    unsafe { signals::install(signal, handler, flags) }.expect("a handler");
}

/// Returns the calling thread, for [`send`].
pub(crate) fn this_thread() -> libc::pthread_t {
    // SAFETY: `pthread_self` has no preconditions.
    unsafe { libc::pthread_self() }
}

/// Sends `signal` to a thread; the caller keeps it from ending before this returns.
pub(crate) fn send(thread: libc::pthread_t, signal: i32) {
    // SAFETY: the callers keep the thread alive while they send, so the handle is valid.
    assert_eq!(unsafe { libc::pthread_kill(thread, signal) }, 0);
}

/// A timer that sends a signal to the thread that created it.
pub(crate) struct Timer(libc::timer_t);

impl Timer {
    pub(crate) fn new(signal: i32) -> Timer {
        Timer(signals::timer_of_this_thread(signal).expect("a timer"))
    }

    pub(crate) fn fire_in(&self, nanoseconds: u64) {
        // SAFETY: this value owns the timer.
        unsafe { signals::fire_once(self.0, Duration::from_nanos(nanoseconds.max(1))) };
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: this value owns the timer and ends here.
        unsafe { libc::timer_delete(self.0) };
    }
}

/// Sends `signal` to this thread once, after some nanoseconds.
pub(crate) fn send_after(signal: i32, nanoseconds: u64) {
    let timer = Timer::new(signal);
    timer.fire_in(nanoseconds);
    // Leaked, because the timer must exist when it fires.
    std::mem::forget(timer);
}

/// Repeats `work` until the handler has counted `signals` more signals in `handled`.
///
/// Each signal comes at a random moment after the one before was handled. Slow machines send fewer.
pub(crate) fn storm(signal: i32, handled: &AtomicU64, signals: u64, mut work: impl FnMut()) {
    let (timer, mut random) = (Timer::new(signal), Random::new(77));
    let signals = scale::rounds(signals);
    let first = handled.load(SeqCst);
    let mut seen = u64::MAX;
    while seen == u64::MAX || seen - first < signals {
        let now = handled.load(SeqCst);
        if now != seen {
            seen = now;
            timer.fire_in(random.below(40_000 * u64::from(scale::factor())));
        }
        work();
    }
    // One more signal is pending.
    while handled.load(SeqCst) == seen {
        work();
    }
}

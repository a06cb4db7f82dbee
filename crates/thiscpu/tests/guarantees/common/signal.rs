//! Signals that arrive at random moments.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use super::random::Random;
use super::scale;

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
    // SAFETY: a zeroed action is valid and has an empty mask. The handlers make only
    // async-signal-safe calls, and the callers pass the flags that fit their parameters.
    let result = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = flags;
        libc::sigaction(signal, &action, std::ptr::null_mut())
    };
    assert_eq!(result, 0);
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
        // SAFETY: all-zero bytes are valid for the event and the timer, and both outlive the call.
        unsafe {
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = signal;
            event.sigev_notify_thread_id = super::pin::tid();
            let mut timer = std::mem::zeroed();
            assert_eq!(libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer), 0);
            Timer(timer)
        }
    }

    pub(crate) fn fire_in(&self, nanoseconds: u64) {
        // SAFETY: all-zero bytes are a valid time, and this value owns the timer.
        unsafe {
            let mut time: libc::itimerspec = std::mem::zeroed();
            time.it_value.tv_nsec = nanoseconds.max(1) as libc::c_long;
            assert_eq!(libc::timer_settime(self.0, 0, &time, std::ptr::null_mut()), 0);
        }
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

//! Signal handlers, and timers that send a signal to one thread.

use std::{io, mem, ptr, time::Duration};

/// Installs a handler for good.
///
/// # Errors
///
/// If the system call fails.
///
/// # Safety
///
/// The caller guarantees that `handler` is a function that takes what the kernel passes with these
/// flags and calls only async-signal-safe functions, or a constant such as `libc::SIG_DFL`.
pub unsafe fn install(signal: i32, handler: *const (), flags: i32) -> io::Result<()> {
    // SAFETY: all zeroes is a valid sigaction: the default action and an empty mask.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = handler as usize;
    action.sa_flags = flags;
    // SAFETY: `action` is valid, the caller guarantees that its handler is signal-safe, and code is
    // never unloaded from a program.
    match unsafe { libc::sigaction(signal, &action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes a timer, not yet started, that sends `signal` to the calling thread.
///
/// # Errors
///
/// If the kernel has no timer left.
pub fn timer_of_this_thread(signal: i32) -> io::Result<libc::timer_t> {
    let mut timer: libc::timer_t = ptr::null_mut();
    // SAFETY: all zeroes is a valid sigevent.
    let mut event: libc::sigevent = unsafe { mem::zeroed() };
    event.sigev_notify = libc::SIGEV_THREAD_ID;
    event.sigev_signo = signal;
    event.sigev_notify_thread_id = crate::cpus::tid();
    // SAFETY: both pointers are to locals of the types that the call takes.
    match unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer) } {
        0 => Ok(timer),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Starts a timer that fires once, after less than a second.
///
/// It cannot fail, so `errno` stays, and signal handlers may call it.
///
/// # Safety
///
/// The caller guarantees that [`timer_of_this_thread`] made the timer, and that it is not deleted.
pub unsafe fn fire_once(timer: libc::timer_t, after: Duration) {
    let once = libc::itimerspec {
        it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
        it_value: libc::timespec { tv_sec: 0, tv_nsec: after.subsec_nanos().into() },
    };
    // SAFETY: the caller guarantees that the timer exists; the pointer is to a local.
    unsafe { libc::timer_settime(timer, 0, &once, ptr::null_mut()) };
}

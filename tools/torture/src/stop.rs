//! Ctrl-C, which ends a run early; the final check still runs.

use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

static REQUESTED: AtomicBool = AtomicBool::new(false);

extern "C" fn request(_signal: i32) {
    REQUESTED.store(true, SeqCst);
}

/// Returns whether the user wants this run to end.
pub(crate) fn is_requested() -> bool {
    REQUESTED.load(SeqCst)
}

/// Makes the first Ctrl-C or SIGTERM request an end; the second one ends the process.
pub(crate) fn listen() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: all zeroes is a valid sigaction; the handler stores to a static and is never
        // unloaded. A refusal leaves the default action, which ends the process at once.
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = request as extern "C" fn(i32) as *const () as usize;
            action.sa_flags = libc::SA_RESTART | libc::SA_RESETHAND;
            libc::sigaction(signal, &action, ptr::null_mut());
        }
    }
}

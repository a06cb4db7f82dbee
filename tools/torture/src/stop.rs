//! Ctrl-C ends a run early, and everything is still accounted for.

use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

static ASKED: AtomicBool = AtomicBool::new(false);

extern "C" fn ask(_signal: i32) {
    ASKED.store(true, SeqCst);
}

/// Whether somebody wants this run to end.
pub(crate) fn is_asked() -> bool {
    ASKED.load(SeqCst)
}

/// From now on the first Ctrl-C, or SIGTERM, asks; the second ends the process as ever.
pub(crate) fn listen() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: all zeroes is a valid sigaction; the handler stores to a static and is never
        // unloaded. A refusal leaves the default, which is to end at once.
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = ask as extern "C" fn(i32) as *const () as usize;
            action.sa_flags = libc::SA_RESTART | libc::SA_RESETHAND;
            libc::sigaction(signal, &action, ptr::null_mut());
        }
    }
}

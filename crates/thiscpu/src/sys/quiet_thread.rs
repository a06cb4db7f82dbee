//! A thread of the library, which takes no signals except those of its own faults.

use std::mem::MaybeUninit;
use std::thread;

/// The size of a thread's stack, in bytes.
///
/// Wakers of the program, and their panics, need most of it.
const STACK_BYTES: usize = 256 << 10;

/// Starts a thread that runs `body`, and returns whether the system has made it.
pub(crate) fn start(name: &str, body: impl FnOnce() + Send + 'static) -> bool {
    // Without a size, std reads the environment, which another thread may change in C.
    let builder = thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES);
    with_signals_blocked(|| builder.spawn(body)).is_ok()
}

/// The signals of a thread's own faults. If they are blocked, a fault ends the process.
///
/// A sandbox may answer a system call with SIGSYS.
const FAULTS: [libc::c_int; 6] =
    [libc::SIGBUS, libc::SIGSEGV, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// Calls a function with all signals blocked except those of faults.
///
/// A thread that the function starts inherits that.
pub fn with_signals_blocked<T>(function: impl FnOnce() -> T) -> T {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: the calls initialize the sets that they are given a pointer to, and the first one is
    // initialized before it is used. If the second call fails, which it does only for a wrong
    // first argument, the third is not made.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        for fault in FAULTS {
            libc::sigdelset(all.as_mut_ptr(), fault);
        }
        let is_blocked =
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) == 0;
        let result = function();
        if is_blocked {
            libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
        }
        result
    }
}

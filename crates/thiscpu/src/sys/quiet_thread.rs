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
    let _restored_at_the_end = Before::block();
    function()
}

/// The signals that were blocked before, which alone stay blocked after the drop.
struct Before(Option<libc::sigset_t>);

impl Before {
    fn block() -> Before {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: the calls initialize the sets that they are given a pointer to, and the first one
        // is initialized before it is used. The last call fails only for a wrong first argument;
        // otherwise it has initialized the second set.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            for fault in FAULTS {
                libc::sigdelset(all.as_mut_ptr(), fault);
            }
            let (how, all) = (libc::SIG_SETMASK, all.as_ptr());
            let is_blocked = libc::pthread_sigmask(how, all, before.as_mut_ptr()) == 0;
            Before(is_blocked.then(|| before.assume_init()))
        }
    }
}

impl Drop for Before {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // SAFETY: the set is initialized, and the call writes nothing.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
        }
    }
}

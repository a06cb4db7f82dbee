//! Signal handlers that pass on what they do not handle to the handler that was there before.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem::{self, MaybeUninit};
use core::ptr;
use core::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};

/// A handler that gets information about its signal.
pub(crate) type SigactionFn = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
type HandlerFn = unsafe extern "C" fn(c_int);

/// The action that a signal had before a handler was installed.
#[derive(Debug)]
pub struct ChainedHandler {
    signal: c_int,
    is_set: AtomicBool,
    action: UnsafeCell<MaybeUninit<libc::sigaction>>,
}

// SAFETY: `install` writes the action once, before it sets `is_set`, and it is only read
// afterwards.
unsafe impl Sync for ChainedHandler {}

impl ChainedHandler {
    /// Creates a value for a signal, without a handler.
    pub const fn new(signal: c_int) -> ChainedHandler {
        let action = UnsafeCell::new(MaybeUninit::uninit());
        ChainedHandler { signal, is_set: AtomicBool::new(false), action }
    }

    /// Returns the action, if it is known.
    fn previous(&self) -> Option<&libc::sigaction> {
        // Acquire: pairs with the Release in `install`.
        // SAFETY: once `is_set`, the action is written and does not change.
        self.is_set.load(Acquire).then(|| unsafe { (*self.action.get()).assume_init_ref() })
    }

    /// Installs a handler, once, and returns whether that worked.
    ///
    /// A handler that the program installs later stays.
    ///
    /// # Safety
    ///
    /// The caller holds a lock. The handler is async-signal-safe, and its code stays mapped.
    pub unsafe fn install(&self, handler: SigactionFn) -> bool {
        // Relaxed: the caller's lock orders calls.
        if self.is_set.load(Relaxed) {
            return true;
        }
        // SAFETY: `sigaction` is plain data, for which zeros are valid. The caller guarantees the
        // handler, and the previous action is stored before the handler can run. Under the caller's
        // lock, nobody else stores it.
        unsafe {
            let mut old: libc::sigaction = mem::zeroed();
            if libc::sigaction(self.signal, ptr::null(), &raw mut old) != 0 {
                return false;
            }
            (*self.action.get()).write(old);
            // Release: pairs with the Acquire in `previous`.
            self.is_set.store(true, Release);
            let mut new: libc::sigaction = mem::zeroed();
            new.sa_sigaction = handler as usize;
            // The previous handler, when chained to, finds the signals blocked that it requested.
            new.sa_mask = old.sa_mask;
            new.sa_flags = (old.sa_flags & (libc::SA_NODEFER | libc::SA_RESTART))
                | libc::SA_SIGINFO
                | libc::SA_ONSTACK;
            let result = libc::sigaction(self.signal, &raw const new, ptr::null_mut());
            self.is_set.store(result == 0, Release);
            result == 0
        }
    }

    /// Does what would have happened without this handler.
    ///
    /// # Safety
    ///
    /// The kernel has passed these arguments to a handler of this signal.
    pub unsafe fn chain(&self, info: *mut libc::siginfo_t, context: *mut c_void) {
        // SAFETY: the caller guarantees that the kernel has passed `info`.
        let is_sent = unsafe { (*info).si_code } <= 0;
        match self.previous().map(|action| (action.sa_sigaction, action.sa_flags)) {
            Some((libc::SIG_IGN, _)) if is_sent => {}
            None | Some((libc::SIG_DFL | libc::SIG_IGN, _)) => {
                self.restore_default();
                if is_sent {
                    // A fault would happen again, but a sent signal would not.
                    // SAFETY: raise has no preconditions. The signal is blocked until the handler
                    // returns.
                    unsafe { libc::raise(self.signal) };
                }
            }
            Some((handler, flags)) => {
                // The kernel would have done so before it called the program's handler.
                if flags & libc::SA_RESETHAND != 0 {
                    self.restore_default();
                }
                if flags & libc::SA_SIGINFO != 0 {
                    // SAFETY: with SA_SIGINFO, the program has installed a function of this type.
                    unsafe {
                        mem::transmute::<usize, SigactionFn>(handler)(self.signal, info, context);
                    }
                } else {
                    // SAFETY: without it, the program has installed a function of this type.
                    unsafe { mem::transmute::<usize, HandlerFn>(handler)(self.signal) };
                }
            }
        }
    }

    /// Restores the signal's default action.
    pub fn restore_default(&self) {
        // SAFETY: `sigaction` is plain data, for which zeros are valid. The default action is valid
        // for every signal.
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = libc::SIG_DFL;
            libc::sigaction(self.signal, &raw const action, ptr::null_mut());
        }
    }
}

//! The handler of `SIGSEGV` and `SIGBUS`: reports faults in the pool, and chains all others.
//!
//! After a report, the default action is restored and the handler returns. So the access faults
//! again and ends the process with the signal, registers and core dump of the error itself.
//!
//! A handler that the program installs later gets the faults in the pool too, without a report.
//! Most such handlers chain foreign faults to the previous handler, which is this one.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem::{self, MaybeUninit};
use core::ptr;
use core::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};

use thiscpu::__internal::save_errno;

use super::{pages, pool, report};
use crate::stack::{self, Stack};

type SigactionFn = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
type HandlerFn = unsafe extern "C" fn(c_int);

/// The action that a signal had before.
struct PreviousHandler {
    signal: c_int,
    is_set: AtomicBool,
    action: UnsafeCell<MaybeUninit<libc::sigaction>>,
}

// SAFETY: `install` writes the action once, before it sets `is_set`, and it is only read
// afterwards.
unsafe impl Sync for PreviousHandler {}

impl PreviousHandler {
    const fn new(signal: c_int) -> PreviousHandler {
        let action = UnsafeCell::new(MaybeUninit::uninit());
        PreviousHandler { signal, is_set: AtomicBool::new(false), action }
    }

    /// Returns the action, if it is known.
    fn get(&self) -> Option<&libc::sigaction> {
        // Acquire: pairs with the Release in `install`.
        // SAFETY: once `is_set`, the action is written and does not change.
        self.is_set.load(Acquire).then(|| unsafe { (*self.action.get()).assume_init_ref() })
    }
}

static PREVIOUS: [PreviousHandler; 2] =
    [PreviousHandler::new(libc::SIGSEGV), PreviousHandler::new(libc::SIGBUS)];

/// Installs the handler, once, and returns whether that worked. The caller holds a lock.
pub(super) fn init() -> bool {
    PREVIOUS.iter().all(|previous| previous.is_set.load(Relaxed) || install(previous))
}

fn install(previous: &PreviousHandler) -> bool {
    // SAFETY: `sigaction` is plain data, for which zeros are valid. The handler is
    // async-signal-safe, and the previous action is stored before the handler can run.
    unsafe {
        let mut old: libc::sigaction = mem::zeroed();
        if libc::sigaction(previous.signal, ptr::null(), &raw mut old) != 0 {
            return false;
        }
        (*previous.action.get()).write(old);
        // Release: pairs with the Acquire in `get`.
        previous.is_set.store(true, Release);
        let mut new: libc::sigaction = mem::zeroed();
        new.sa_sigaction = on_fault as SigactionFn as usize;
        // The previous handler, when chained to, finds the signals blocked that it requested.
        new.sa_mask = old.sa_mask;
        new.sa_flags = (old.sa_flags & (libc::SA_NODEFER | libc::SA_RESTART))
            | libc::SA_SIGINFO
            | libc::SA_ONSTACK;
        let result = libc::sigaction(previous.signal, &raw const new, ptr::null_mut());
        previous.is_set.store(result == 0, Release);
        result == 0
    }
}

/// A fault, for the report.
struct Fault {
    address: usize,
    context: *const c_void,
}

unsafe extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let _errno = save_errno();
    // SAFETY: the kernel passes valid signal information.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    // A signal that a process has sent has no address. Its code is not positive.
    if code <= 0 || !pages::owns(address) {
        // SAFETY: the kernel has passed these arguments.
        return unsafe { chain(signal, info, context) };
    }
    if report::begin() {
        let fault = Fault { address, context };
        block_signals();
        // The program's signal stack may be too small.
        // SAFETY: `report::begin` lets one thread of the process get here, so no other uses this
        // stack. Its end is aligned to a page.
        unsafe {
            stack::call_on_stack(pages::report_stack(), report_fault, &raw const fault as usize)
        };
    }
    restore_default(signal);
}

/// Blocks all signals until the handler returns.
///
/// While this thread runs on the report stack, the kernel takes the signal stack for unused, and
/// would start another handler over the frames of this one.
fn block_signals() {
    // SAFETY: `sigset_t` is plain data, for which zeros are valid, and sigfillset fills it.
    unsafe {
        let mut all: libc::sigset_t = mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, ptr::null_mut());
    }
}

extern "C" fn report_fault(fault: usize) {
    // SAFETY: `on_fault` has passed the address of a `Fault` and waits for this function. The
    // context is the kernel's, of a fault of this thread.
    let (address, now, is_write) = unsafe {
        let fault = &*(fault as *const Fault);
        (fault.address, Stack::from_context(fault.context), stack::was_write(fault.context))
    };
    report::write(&pool::explain(address, is_write), &now);
}

/// Does what would have happened without this handler.
///
/// # Safety
///
/// The kernel has passed these arguments to a handler of this signal.
unsafe fn chain(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let previous =
        PREVIOUS.iter().find(|previous| previous.signal == signal).and_then(PreviousHandler::get);
    // SAFETY: the caller guarantees that the kernel has passed `info`.
    let is_sent = unsafe { (*info).si_code } <= 0;
    match previous.map(|action| (action.sa_sigaction, action.sa_flags)) {
        Some((libc::SIG_IGN, _)) if is_sent => {}
        None | Some((libc::SIG_DFL | libc::SIG_IGN, _)) => {
            restore_default(signal);
            if is_sent {
                // A fault would happen again, but a sent signal would not.
                // SAFETY: raise has no preconditions. The signal is blocked until the handler
                // returns.
                unsafe { libc::raise(signal) };
            }
        }
        // SAFETY: with SA_SIGINFO, the program has installed a function of this type.
        Some((handler, flags)) if flags & libc::SA_SIGINFO != 0 => unsafe {
            mem::transmute::<usize, SigactionFn>(handler)(signal, info, context);
        },
        // SAFETY: without SA_SIGINFO, the program has installed a function of this type.
        Some((handler, _)) => unsafe { mem::transmute::<usize, HandlerFn>(handler)(signal) },
    }
}

fn restore_default(signal: c_int) {
    // SAFETY: `sigaction` is plain data, for which zeros are valid. The default action is valid for
    // every signal.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(signal, &raw const action, ptr::null_mut());
    }
}

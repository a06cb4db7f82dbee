//! The handler of `SIGSEGV` and `SIGBUS`: a fault in the pool is reported, any other is handed on to what was there before.
//!
//! After a report the default action is restored and the handler returns, so that the access faults again and ends the process
//! with the signal, the registers and, if one is written, the core of the error itself. A program that installs a handler of its own
//! afterwards gets the faults in the pool too, and there is no report; most hand on what is not theirs, to this one.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem::{self, MaybeUninit};
use core::ptr;
use core::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};

use thiscpu::probe::save_errno;

use super::stack::{self, Stack};
use super::{pages, pool, report};

type SigactionFn = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
type HandlerFn = unsafe extern "C" fn(c_int);

/// What was there for a signal before.
struct PreviousHandler {
    signal: c_int,
    is_set: AtomicBool,
    action: UnsafeCell<MaybeUninit<libc::sigaction>>,
}

// SAFETY: the action is written once, by `init`, before it is known, and only read afterwards.
unsafe impl Sync for PreviousHandler {}

impl PreviousHandler {
    const fn new(signal: c_int) -> PreviousHandler {
        let action = UnsafeCell::new(MaybeUninit::uninit());
        PreviousHandler { signal, is_set: AtomicBool::new(false), action }
    }

    fn get(&self) -> Option<&libc::sigaction> {
        // Acquire: pairs with the Release in `init`.
        // SAFETY: once known it is there, and does not change.
        self.is_set.load(Acquire).then(|| unsafe { (*self.action.get()).assume_init_ref() })
    }
}

static PREVIOUS: [PreviousHandler; 2] =
    [PreviousHandler::new(libc::SIGSEGV), PreviousHandler::new(libc::SIGBUS)];

/// Installs the handler, once. One thread at a time may be here; whether it is installed.
pub(super) fn init() -> bool {
    PREVIOUS.iter().all(|previous| previous.is_set.load(Relaxed) || install(previous))
}

fn install(previous: &PreviousHandler) -> bool {
    // SAFETY: plain data, for which zeros are good; looks at the action and changes it. The handler keeps to what is allowed in one,
    // and what it hands on to is known before it can be called.
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
        // What was there before finds the same signals blocked as it asked for.
        new.sa_mask = old.sa_mask;
        new.sa_flags = (old.sa_flags & (libc::SA_NODEFER | libc::SA_RESTART))
            | libc::SA_SIGINFO
            | libc::SA_ONSTACK;
        let result = libc::sigaction(previous.signal, &raw const new, ptr::null_mut());
        previous.is_set.store(result == 0, Release);
        result == 0
    }
}

/// What the report needs to know of a fault.
struct Fault {
    address: usize,
    context: *const c_void,
}

unsafe extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let _errno = save_errno();
    // SAFETY: the kernel's.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    // A signal that somebody has sent has no address, and a code that is not above 0.
    if code <= 0 || !pages::owns(address) {
        // SAFETY: as this function's.
        return unsafe { chain(signal, info, context) };
    }
    if report::begin() {
        let fault = Fault { address, context };
        block_signals();
        // The thread's own stack for signals may be small. SAFETY: one report at a time is what the stack is for.
        unsafe {
            stack::call_on_stack(pages::report_stack(), report_fault, &raw const fault as usize)
        };
    }
    restore_default(signal);
}

/// Until the handler returns. On another stack than that for signals, the kernel would begin the next handler where this one began.
fn block_signals() {
    // SAFETY: plain data, which is filled in; only this thread is concerned.
    unsafe {
        let mut all: libc::sigset_t = mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, ptr::null_mut());
    }
}

extern "C" fn report_fault(fault: usize) {
    // SAFETY: `on_fault` has passed it, and waits. Its context is that of a fault.
    let (address, now, is_write) = unsafe {
        let fault = &*(fault as *const Fault);
        (fault.address, Stack::from_context(fault.context), stack::was_write(fault.context))
    };
    report::write(&pool::explain(address, is_write), &now);
}

/// Does what would have been done without this handler.
///
/// # Safety
///
/// The arguments are the kernel's.
unsafe fn chain(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let previous =
        PREVIOUS.iter().find(|previous| previous.signal == signal).and_then(PreviousHandler::get);
    // SAFETY: the kernel's.
    let is_sent = unsafe { (*info).si_code } <= 0;
    match previous.map(|action| (action.sa_sigaction, action.sa_flags)) {
        Some((libc::SIG_IGN, _)) if is_sent => {}
        None | Some((libc::SIG_DFL | libc::SIG_IGN, _)) => {
            restore_default(signal);
            if is_sent {
                // A fault happens again; this would not. SAFETY: sends this thread a signal, which is blocked until the
                // handler returns.
                unsafe { libc::raise(signal) };
            }
        }
        // SAFETY: somebody has installed a function of this type for this signal.
        Some((handler, flags)) if flags & libc::SA_SIGINFO != 0 => unsafe {
            mem::transmute::<usize, SigactionFn>(handler)(signal, info, context);
        },
        // SAFETY: as above.
        Some((handler, _)) => unsafe { mem::transmute::<usize, HandlerFn>(handler)(signal) },
    }
}

fn restore_default(signal: c_int) {
    // SAFETY: plain data, for which zeros are good; the default action is always allowed.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(signal, &raw const action, ptr::null_mut());
    }
}

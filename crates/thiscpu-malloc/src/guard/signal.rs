//! The handler of `SIGSEGV` and `SIGBUS`: reports faults in the pool, and chains all others.
//!
//! After a report, the default action is restored and the handler returns. So the access faults
//! again and ends the process with the signal, registers and core dump of the error itself.
//!
//! A handler that the program installs later gets the faults in the pool too, without a report.
//! Most such handlers chain foreign faults to the previous handler, which is this one.

use core::ffi::{c_int, c_void};
use core::{mem, ptr};

use thiscpu::__internal::{ChainedHandler, save_errno};

use super::{pages, pool, report};
use crate::stack::{self, Stack};

static HANDLERS: [ChainedHandler; 2] =
    [ChainedHandler::new(libc::SIGSEGV), ChainedHandler::new(libc::SIGBUS)];

/// Installs the handler, once, and returns whether that worked. The caller holds a lock.
pub(super) fn init() -> bool {
    // SAFETY: the caller holds a lock. The handler is async-signal-safe, and an allocator stays
    // mapped.
    HANDLERS.iter().all(|handler| unsafe { handler.install(on_fault) })
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
    let handler = &HANDLERS[usize::from(signal == libc::SIGBUS)];
    if code <= 0 || !pages::owns(address) {
        // SAFETY: the kernel has passed these arguments.
        return unsafe { handler.chain(info, context) };
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
    handler.restore_default();
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

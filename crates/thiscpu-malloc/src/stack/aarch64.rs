//! Registers of AArch64, numbered like in DWARF unwind tables.

use core::arch::asm;
use core::ffi::c_void;

pub(super) const COUNT: usize = 32;
pub(super) const FRAME_POINTER: usize = 29;
pub(super) const STACK_POINTER: usize = 31;

/// Returns the callee-saved registers and the pc of the function that this is inlined into.
///
/// A stack walk needs no other registers to find those of callers.
#[inline(always)]
pub(super) fn capture() -> ([usize; COUNT], usize) {
    let mut values = [0; COUNT];
    let pc: usize;
    // SAFETY: the code stores registers to the array, at indices below `COUNT`, and has no other
    // effect.
    unsafe {
        asm!(
            "stp x19, x20, [{values}, #19 * 8]",
            "stp x21, x22, [{values}, #21 * 8]",
            "stp x23, x24, [{values}, #23 * 8]",
            "stp x25, x26, [{values}, #25 * 8]",
            "stp x27, x28, [{values}, #27 * 8]",
            "stp x29, x30, [{values}, #29 * 8]",
            "mov {pc}, sp",
            "str {pc}, [{values}, #31 * 8]",
            "adr {pc}, .",
            values = in(reg) values.as_mut_ptr(),
            pc = out(reg) pc,
            options(nostack, preserves_flags),
        );
    }
    (values, pc)
}

/// Returns the registers and the pc of the code that a signal has interrupted.
///
/// # Safety
///
/// The kernel has passed the context to a signal handler, which has not returned.
pub(super) unsafe fn from_context(context: *const c_void) -> ([usize; COUNT], usize) {
    // SAFETY: the caller guarantees that the context is the kernel's, so it is valid.
    let context = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
    let mut values = [0; COUNT];
    for (value, &register) in values.iter_mut().zip(&context.regs) {
        *value = register as usize;
    }
    values[STACK_POINTER] = context.sp as usize;
    (values, context.pc as usize)
}

/// Returns whether the access that faulted was a write: unknown on this architecture.
///
/// The kernel may add a record to the context that says it; this function does not read that.
///
/// # Safety
///
/// There are no requirements on this architecture.
pub(super) unsafe fn was_write(_: *const c_void) -> Option<bool> {
    None
}

/// Returns the code address of a return address, whose high bits may be a signature (PAC).
pub(super) fn strip_pac(return_address: usize) -> usize {
    return_address & ((1 << 48) - 1)
}

/// Calls `function(argument)` on the stack that ends at `top`.
///
/// # Safety
///
/// The stack is large enough and not in use; `top` is a multiple of 16.
pub(super) unsafe fn call_on_stack(top: usize, function: extern "C" fn(usize), argument: usize) {
    // SAFETY: the caller guarantees a valid stack. `function` preserves x20, so the old stack
    // pointer is restored from it.
    unsafe {
        asm!(
            "mov x9, sp",
            "mov sp, x20",
            "mov x20, x9",
            "blr {function}",
            "mov sp, x20",
            function = in(reg) function,
            in("x0") argument,
            inout("x20") top => _,
            out("x9") _,
            clobber_abi("C"),
        );
    }
}

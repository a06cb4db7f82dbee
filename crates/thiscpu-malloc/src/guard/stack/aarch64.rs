//! Registers of AArch64, numbered as its ABI numbers them for unwinding tables.

use core::arch::asm;
use core::ffi::c_void;

pub(super) const COUNT: usize = 32;
pub(super) const FRAME_POINTER: usize = 29;
pub(super) const STACK_POINTER: usize = 31;

/// What a caller's registers can be found from, at the place where this is inlined; and that place.
#[inline(always)]
pub(super) fn capture() -> ([usize; COUNT], usize) {
    let mut values = [0; COUNT];
    let pc: usize;
    // SAFETY: it stores those registers that functions preserve to their places in the array, and touches nothing else.
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

/// The registers of what a signal has interrupted, and where that was.
///
/// # Safety
///
/// The context is what the kernel gave to a signal handler.
pub(super) unsafe fn from_context(context: *const c_void) -> ([usize; COUNT], usize) {
    // SAFETY: the caller's promise.
    let context = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
    let mut values = [0; COUNT];
    for (value, &register) in values.iter_mut().zip(&context.regs) {
        *value = register as usize;
    }
    values[STACK_POINTER] = context.sp as usize;
    (values, context.pc as usize)
}

/// Whether the access that faulted was a write, where that is known: the kernel says it in a record that the context may
/// have, which is not looked for.
///
/// # Safety
///
/// None is needed here.
pub(super) unsafe fn was_write(_: *const c_void) -> Option<bool> {
    None
}

/// The address that a return address stands for: its high bits may be a signature.
pub(super) fn strip_pac(return_address: usize) -> usize {
    return_address & ((1 << 48) - 1)
}

/// Calls `function(argument)` on the stack that ends at `top`.
///
/// # Safety
///
/// The stack is large enough and nobody uses it; `top` is a multiple of 16.
pub(super) unsafe fn call_on_stack(top: usize, function: extern "C" fn(usize), argument: usize) {
    // SAFETY: x20 is one of the registers that `what` preserves, so the stack comes back from it.
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

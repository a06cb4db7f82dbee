//! Registers of x86-64, numbered as its ABI numbers them for unwinding tables.

use core::arch::asm;
use core::ffi::c_void;

pub(super) const COUNT: usize = 17;
pub(super) const FRAME_POINTER: usize = 6;
pub(super) const STACK_POINTER: usize = 7;

/// Which entry of a signal's context each of the first 16 is.
const IN_CONTEXT: [i32; 16] = [
    libc::REG_RAX,
    libc::REG_RDX,
    libc::REG_RCX,
    libc::REG_RBX,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_RBP,
    libc::REG_RSP,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

/// What a caller's registers can be found from, at the place where this is inlined; and that place.
#[inline(always)]
pub(super) fn capture() -> ([usize; COUNT], usize) {
    let mut values = [0; COUNT];
    let pc: usize;
    // SAFETY: it stores those registers that functions preserve to their places in the array, and touches nothing else.
    unsafe {
        asm!(
            "mov [{values} + 3 * 8], rbx",
            "mov [{values} + 6 * 8], rbp",
            "mov [{values} + 7 * 8], rsp",
            "mov [{values} + 12 * 8], r12",
            "mov [{values} + 13 * 8], r13",
            "mov [{values} + 14 * 8], r14",
            "mov [{values} + 15 * 8], r15",
            "lea {pc}, [rip]",
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
    let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let mut values = [0; COUNT];
    for (value, index) in values.iter_mut().zip(IN_CONTEXT) {
        *value = registers[index as usize] as usize;
    }
    (values, registers[libc::REG_RIP as usize] as usize)
}

/// Whether the access that faulted was a write, where that is known.
///
/// # Safety
///
/// As for [`interrupted`], of a page fault.
pub(super) unsafe fn was_write(context: *const c_void) -> Option<bool> {
    const WRITE: i64 = 1 << 1;
    // SAFETY: the caller's promise.
    let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    Some(registers[libc::REG_ERR as usize] & WRITE != 0)
}

/// The address that a return address stands for.
pub(super) fn strip_pac(return_address: usize) -> usize {
    return_address
}

/// Calls `function(argument)` on the stack that ends at `top`.
///
/// # Safety
///
/// The stack is large enough and nobody uses it; `top` is a multiple of 16.
pub(super) unsafe fn call_on_stack(top: usize, function: extern "C" fn(usize), argument: usize) {
    // SAFETY: r12 is one of the registers that `what` preserves, so the stack comes back from it.
    unsafe {
        asm!(
            "xchg rsp, r12",
            "call {function}",
            "mov rsp, r12",
            function = in(reg) function,
            in("rdi") argument,
            inout("r12") top => _,
            clobber_abi("C"),
        );
    }
}

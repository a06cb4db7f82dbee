//! Registers of x86-64, numbered like in DWARF unwind tables.

use core::arch::asm;
use core::ffi::c_void;

pub(super) const COUNT: usize = 17;
pub(super) const FRAME_POINTER: usize = 6;
pub(super) const STACK_POINTER: usize = 7;

/// The index of each of the first 16 registers in a signal's context.
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

/// Returns the registers and the pc of the code that a signal has interrupted.
///
/// # Safety
///
/// The kernel has passed the context to a signal handler, which has not returned.
pub(super) unsafe fn from_context(context: *const c_void) -> ([usize; COUNT], usize) {
    // SAFETY: the caller guarantees that the context is the kernel's, so it is valid.
    let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let mut values = [0; COUNT];
    for (value, index) in values.iter_mut().zip(IN_CONTEXT) {
        *value = registers[index as usize] as usize;
    }
    (values, registers[libc::REG_RIP as usize] as usize)
}

/// Returns whether the access that faulted was a write, if that is known.
///
/// # Safety
///
/// The kernel has passed the context to a handler of a page fault, which has not returned.
pub(super) unsafe fn was_write(context: *const c_void) -> Option<bool> {
    const WRITE: i64 = 1 << 1;
    // SAFETY: the caller guarantees that the context is the kernel's, so it is valid.
    let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    Some(registers[libc::REG_ERR as usize] & WRITE != 0)
}

/// Returns the code address of a return address, which is the same on this architecture.
pub(super) fn strip_pac(return_address: usize) -> usize {
    return_address
}

/// Calls `function(argument)` on the stack that ends at `top`.
///
/// # Safety
///
/// The stack is large enough and not in use; `top` is a multiple of 16.
pub(super) unsafe fn call_on_stack(top: usize, function: extern "C" fn(usize), argument: usize) {
    // SAFETY: the caller guarantees a valid stack. `function` preserves r12, so the old stack
    // pointer is restored from it.
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

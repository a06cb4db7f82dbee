//! A `vfork` whose children use the shared lane, for shared objects to export.
//!
//! A C wrapper around `vfork` cannot work: the child returns from it, and overwrites the stack
//! frame to which the parent then returns. So the function keeps its return address in a register
//! while the child runs, and uses no stack.
//!
//! The child leaves by a jump, not by a return. With shadow stacks it shares its parent's. A return
//! would let the child's next call overwrite the parent's return address there. Without shadow
//! stacks the jump is as good.
//!
//! Where `vfork` is `fork` (emulators), the child goes on without lanes, which is slow and correct.

pub use crate::sys::rseq::vfork_word::{Member, Shared, is_child, join_own as join};

use crate::sys::{errno, rseq::vfork};

/// Begins a scope; see [`crate::vfork_scope`].
pub extern "C" fn enter() -> u32 {
    vfork::enter()
}

/// Ends a scope in the parent. `previous` is the result of [`enter`].
pub extern "C" fn leave(previous: u32) {
    vfork::leave(previous);
}

/// Sets `errno`, and returns -1.
pub extern "C" fn fail(error: i32) -> i32 {
    errno::set(error);
    -1
}

/// The system call that makes a child, and its flags if it takes any.
#[cfg(target_arch = "x86_64")]
pub const SYSTEM_CALL: i64 = libc::SYS_vfork;
#[cfg(target_arch = "aarch64")]
pub const SYSTEM_CALL: i64 = libc::SYS_clone;
#[cfg(target_arch = "aarch64")]
pub const FLAGS: i32 = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;

/// Defines `vfork`, and a function of the given name by which other copies join this one.
#[doc(hidden)]
#[macro_export]
macro_rules! define_vfork {
    ($join:literal) => {
        #[unsafe(export_name = $join)]
        extern "C" fn join(
            member: &'static $crate::__internal::vfork::Member,
        ) -> &'static $crate::__internal::vfork::Shared {
            $crate::__internal::vfork::join(member)
        }

        #[cfg(target_arch = "x86_64")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn vfork() -> i32 {
            // The system call changes rax, rcx and r11. The others are the parent's again when it
            // goes on.
            core::arch::naked_asm!(
                ".cfi_startproc",
                "endbr64",
                "sub rsp, 8",
                ".cfi_adjust_cfa_offset 8",
                "call {enter}",
                "add rsp, 8",
                ".cfi_adjust_cfa_offset -8",
                "mov edx, eax",
                "pop rdi",
                ".cfi_adjust_cfa_offset -8",
                ".cfi_register rip, rdi",
                "mov eax, {SYSTEM_CALL}",
                "syscall",
                "test eax, eax",
                "jz 37f",
                "push rdi",
                ".cfi_remember_state",
                ".cfi_adjust_cfa_offset 8",
                ".cfi_offset rip, -8",
                "push rax",
                ".cfi_adjust_cfa_offset 8",
                "mov edi, edx",
                "call {leave}",
                "pop rax",
                ".cfi_adjust_cfa_offset -8",
                "cmp eax, -4095",
                "jae 38f",
                "ret",
                "38:",
                "mov edi, eax",
                "neg edi",
                "jmp {fail}",
                "37:",
                ".cfi_restore_state",
                "jmp rdi",
                ".cfi_endproc",
                enter = sym $crate::__internal::vfork::enter,
                leave = sym $crate::__internal::vfork::leave,
                fail = sym $crate::__internal::vfork::fail,
                SYSTEM_CALL = const $crate::__internal::vfork::SYSTEM_CALL,
            )
        }

        #[cfg(target_arch = "aarch64")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn vfork() -> i32 {
            // The system call changes x0 only. The other registers are the parent's again when it
            // goes on.
            core::arch::naked_asm!(
                ".cfi_startproc",
                // bti c
                "hint #34",
                "stp x29, x30, [sp, #-16]!",
                ".cfi_adjust_cfa_offset 16",
                ".cfi_offset x29, -16",
                ".cfi_offset x30, -8",
                "mov x29, sp",
                "bl {enter}",
                "ldp x29, x30, [sp], #16",
                ".cfi_adjust_cfa_offset -16",
                ".cfi_restore x29",
                ".cfi_restore x30",
                "mov w9, w0",
                "mov x0, #{FLAGS}",
                "mov x1, #0",
                "mov x2, #0",
                "mov x3, #0",
                "mov x4, #0",
                "mov x8, #{SYSTEM_CALL}",
                "svc #0",
                "cbz x0, 37f",
                "stp x29, x30, [sp, #-32]!",
                ".cfi_remember_state",
                ".cfi_adjust_cfa_offset 32",
                ".cfi_offset x29, -32",
                ".cfi_offset x30, -24",
                "mov x29, sp",
                "str x0, [sp, #16]",
                "mov w0, w9",
                "bl {leave}",
                "ldr x0, [sp, #16]",
                "ldp x29, x30, [sp], #32",
                ".cfi_restore_state",
                "cmn x0, #4095",
                "b.cs 38f",
                "ret",
                "38:",
                "neg w0, w0",
                "b {fail}",
                "37:",
                // chkfeat x16 clears the bit if there is a shadow stack (GCS). The compiler of the
                // caller has put a landing pad behind the call then.
                "mov x16, #1",
                "hint #40",
                "cbnz x16, 39f",
                "mov x16, x30",
                "br x16",
                "39:",
                "ret",
                ".cfi_endproc",
                enter = sym $crate::__internal::vfork::enter,
                leave = sym $crate::__internal::vfork::leave,
                fail = sym $crate::__internal::vfork::fail,
                FLAGS = const $crate::__internal::vfork::FLAGS,
                SYSTEM_CALL = const $crate::__internal::vfork::SYSTEM_CALL,
            )
        }
    };
}

//! `dlopen` without `RTLD_DEEPBIND`, and `dlmopen` with a warning.
//!
//! A library that is loaded with `RTLD_DEEPBIND` finds the C library's malloc before this one. If
//! such a library and the rest of the program free each other's blocks, the program dies. So the
//! flag is left out. A library in another namespace has a C library of its own, whose malloc cannot
//! be replaced from here.
//!
//! A new object may take the addresses of one that was unloaded, so unwind rules are forgotten
//! before.
//!
//! The loader finds the caller's `RUNPATH` and namespace by the return address. So these functions
//! end with a jump to the C library's functions, which then return to the caller.

use core::ffi::{CStr, c_char, c_int, c_long, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Relaxed};

use thiscpu::__internal::{note_other_namespace, write_line};
use thiscpu_malloc::export::forget_rules;

/// Where a function continues, and the flags that it passes on, in two registers.
#[repr(C)]
struct Jump {
    function: *mut c_void,
    flags: usize,
}

/// Loads an object like the C library's function, but without `RTLD_DEEPBIND`.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!(
        ".cfi_startproc",
        // With the return address, this aligns the stack to 16 bytes.
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "call {before}",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "mov esi, edx",
        "jmp rax",
        ".cfi_endproc",
        before = sym before_dlopen,
    );
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-32]!",
        ".cfi_def_cfa_offset 32",
        ".cfi_offset x29, -32",
        ".cfi_offset x30, -24",
        "mov x29, sp",
        "str x0, [sp, #16]",
        "bl {before}",
        // A function may begin with an instruction that accepts only jumps by this register.
        "mov x16, x0",
        "ldr x0, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        ".cfi_restore x29",
        ".cfi_restore x30",
        ".cfi_def_cfa_offset 0",
        "br x16",
        ".cfi_endproc",
        before = sym before_dlopen,
    );
}

/// Loads an object into a namespace like the C library's function.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn dlmopen(space: c_long, path: *const c_char, flags: c_int) -> *mut c_void {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        // The third argument is then in the register that the call returns the flags in.
        "call {before}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "jmp rax",
        ".cfi_endproc",
        before = sym before_dlmopen,
    );
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-32]!",
        ".cfi_def_cfa_offset 32",
        ".cfi_offset x29, -32",
        ".cfi_offset x30, -24",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "bl {before}",
        "mov x16, x0",
        "mov x2, x1",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        ".cfi_restore x29",
        ".cfi_restore x30",
        ".cfi_def_cfa_offset 0",
        "br x16",
        ".cfi_endproc",
        before = sym before_dlmopen,
    );
}

/// Removes `RTLD_DEEPBIND`, with a warning if the call may load an object.
unsafe extern "C" fn before_dlopen(path: *const c_char, flags: c_int) -> Jump {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    forget_rules();
    if flags & libc::RTLD_DEEPBIND != 0 {
        // SAFETY: as for dlopen, the path is null or a string.
        unsafe { warn_of_deepbind(path, flags) };
    }
    jump(&NEXT, c"dlopen", flags & !libc::RTLD_DEEPBIND)
}

/// Warns of another namespace. For this one, removes `RTLD_DEEPBIND` like [`before_dlopen`].
unsafe extern "C" fn before_dlmopen(space: c_long, path: *const c_char, flags: c_int) -> Jump {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    forget_rules();
    if space != libc::LM_ID_BASE {
        warn_of_namespace();
        return jump(&NEXT, c"dlmopen", flags);
    }
    if flags & libc::RTLD_DEEPBIND != 0 {
        // SAFETY: as for dlmopen, the path is null or a string.
        unsafe { warn_of_deepbind(path, flags) };
    }
    jump(&NEXT, c"dlmopen", flags & !libc::RTLD_DEEPBIND)
}

/// Writes a warning that the flag is left out, once in a process and its forked children.
///
/// # Safety
///
/// The path is null, or a string.
unsafe fn warn_of_deepbind(path: *const c_char, flags: c_int) {
    // The flag changes nothing for an object that is there already, such as the program itself.
    if path.is_null() || flags & libc::RTLD_NOLOAD != 0 || !is_first(&WARNED_OF_DEEPBIND) {
        return;
    }
    // SAFETY: the caller guarantees that a path that is not null is a string.
    let path = unsafe { CStr::from_ptr(path) };
    write_line(
        libc::STDERR_FILENO,
        format_args!(
            "thiscpu: warning: RTLD_DEEPBIND is ignored: it would give {} another malloc than the \
             rest of the program",
            path.to_bytes().escape_ascii()
        ),
    );
}

static WARNED_OF_DEEPBIND: AtomicBool = AtomicBool::new(false);
static WARNED_OF_NAMESPACE: AtomicBool = AtomicBool::new(false);

/// Writes a warning of a second malloc, once in a process and its forked children.
///
/// Later reports of invalid frees mention it.
fn warn_of_namespace() {
    note_other_namespace();
    if is_first(&WARNED_OF_NAMESPACE) {
        write_line(
            libc::STDERR_FILENO,
            format_args!(
                "thiscpu: warning: dlmopen: libraries in a new namespace have a malloc of their \
                 own; a block must be freed in the namespace that allocated it"
            ),
        );
    }
}

/// Returns whether this is the first call for a flag, and sets the flag.
fn is_first(flag: &AtomicBool) -> bool {
    // Relaxed: only one thread may warn; nothing else depends on which.
    !flag.swap(true, Relaxed)
}

/// Returns the jump to the C library's function of this name.
///
/// It is looked up in its first call: before glibc 2.34 it is in a library of its own, which may be
/// loaded later than this one.
fn jump(next: &AtomicPtr<c_void>, name: &CStr, flags: c_int) -> Jump {
    // Relaxed: all threads find the same function. Its code was mapped before any caller could
    // link to it.
    let mut function = next.load(Relaxed);
    if function.is_null() {
        // SAFETY: the name ends with a zero byte. The return address lies in this library, as
        // RTLD_NEXT requires, because the call is not the last thing that this function does.
        function = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        next.store(function, Relaxed);
    }
    if function.is_null() {
        write_line(
            libc::STDERR_FILENO,
            format_args!(
                "thiscpu: cannot call {}: no library of the program has it; link it with -ldl",
                name.to_bytes().escape_ascii()
            ),
        );
        function = missing as *mut c_void;
    }
    Jump { function, flags: flags as usize }
}

/// Loads nothing: the function that stands for a missing one.
extern "C" fn missing() -> *mut c_void {
    ptr::null_mut()
}

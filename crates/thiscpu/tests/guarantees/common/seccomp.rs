//! A seccomp sandbox: denies system calls in all threads from now on.

use std::io;

/// A system call that the library can do without, or that may fail.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call {
    Rseq,
    Membarrier,
    SetAffinity,
    Advise,
    Allocate,
}

/// Checks that a process can deny itself system calls; call it in a process of its own.
pub(crate) fn can_filter() -> Result<(), String> {
    deny(Call::SetAffinity, libc::EPERM).map_err(|error| format!("needs seccomp filters: {error}"))
}

/// Makes `call` fail with `errno` in all threads, for the rest of the process's life.
pub(crate) fn deny(call: Call, errno: i32) -> io::Result<()> {
    install(call, libc::SECCOMP_RET_ERRNO | errno as u32)
}

/// Makes `call` raise SIGSYS in all threads instead, for the rest of the process's life.
///
/// After the signal handler the call returns some number that is not 0.
pub(crate) fn trap(call: Call) -> io::Result<()> {
    install(call, libc::SECCOMP_RET_TRAP)
}

fn install(call: Call, action: u32) -> io::Result<()> {
    let number = match call {
        Call::Rseq => libc::SYS_rseq,
        Call::Membarrier => libc::SYS_membarrier,
        Call::SetAffinity => libc::SYS_sched_setaffinity,
        Call::Advise => libc::SYS_madvise,
        Call::Allocate => libc::SYS_fallocate,
    };
    thiscpu_test_support::seccomp::install([(number, action)], libc::SECCOMP_RET_ALLOW)
}

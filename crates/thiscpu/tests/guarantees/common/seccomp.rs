//! A seccomp sandbox: denies system calls in all threads from now on.

use std::io;

/// A system call that the library does not strictly need.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call {
    Rseq,
    Membarrier,
    SetAffinity,
}

impl Call {
    fn number(self) -> u32 {
        let number = match self {
            Call::Rseq => libc::SYS_rseq,
            Call::Membarrier => libc::SYS_membarrier,
            Call::SetAffinity => libc::SYS_sched_setaffinity,
        };
        number as u32
    }
}

/// Checks that a process can deny itself system calls; call it in a process of its own.
pub(crate) fn can_filter() -> Result<(), String> {
    deny(Call::SetAffinity, libc::EPERM).map_err(|error| format!("needs seccomp filters: {error}"))
}

/// Makes `call` fail with `errno` in all threads, for the rest of the process's life.
pub(crate) fn deny(call: Call, errno: i32) -> io::Result<()> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const SKIP_UNLESS_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jf, k| libc::sock_filter { code, jt: 0, jf, k };
    // A filter's data begins with the system call number. This process makes calls of one
    // architecture only, so the filter need not check it.
    let mut steps = [
        step(LOAD, 0, 0),
        step(SKIP_UNLESS_EQUAL, 1, call.number()),
        step(RETURN, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
        step(RETURN, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: this `prctl` takes no pointers; the kernel copies the filter, which is a live local.
    let result = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &program,
        )
    };
    match result {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        thread => Err(io::Error::other(format!("thread {thread} has another filter"))),
    }
}

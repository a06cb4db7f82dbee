//! Sandboxes: seccomp filters by system call.

use std::io;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const SKIP_UNLESS_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Applies an action to each listed system call of any thread, and `otherwise` to all others.
///
/// The filter stays for the rest of the process's life.
///
/// # Errors
///
/// If the system has no filters, or another thread has one of its own.
pub fn install(
    rules: impl IntoIterator<Item = (libc::c_long, u32)>,
    otherwise: u32,
) -> io::Result<()> {
    let step = |code, jf, k| libc::sock_filter { code, jt: 0, jf, k };
    // A filter's input begins with the system call's number. A process makes calls of one
    // architecture only, so the filter need not check it.
    let mut steps = vec![step(LOAD, 0, 0)];
    for (call, action) in rules {
        steps.extend([step(SKIP_UNLESS_EQUAL, 1, call as u32), step(RETURN, 0, action)]);
    }
    steps.push(step(RETURN, 0, otherwise));
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: both calls take integers, and the filter is valid while the kernel copies it.
    let result = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        let (mode, all) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
        libc::syscall(libc::SYS_seccomp, mode, all, &program)
    };
    match result {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        thread => Err(io::Error::other(format!("thread {thread} has another filter"))),
    }
}

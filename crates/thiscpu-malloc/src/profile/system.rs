//! System calls that a profile is written by.
//!
//! They are raw: the C library's functions are cancellation points, and the program may replace
//! them. A profile may be written within `malloc`, where neither must happen.

use core::ffi::{CStr, c_int, c_long, c_uint};
use core::mem::MaybeUninit;
use core::ptr;

/// Returns the result of a system call, or the number of its error.
fn check(result: c_long) -> Result<usize, c_int> {
    // SAFETY: the address is that of this thread's `errno`.
    usize::try_from(result).map_err(|_| unsafe { *libc::__errno_location() })
}

/// Opens a file, closed on exec; returns its descriptor.
pub(super) fn open(path: &CStr, flags: c_int) -> Result<c_int, c_int> {
    let (flags, mode): (_, c_uint) = (flags | libc::O_CLOEXEC, 0o666);
    // SAFETY: the path is a C string, and the rest are integers.
    let file = check(unsafe {
        libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, mode)
    })?;
    Ok(file as c_int)
}

/// Closes a descriptor that the caller has opened. Does nothing for -1.
pub(super) fn close(file: c_int) {
    // SAFETY: the caller has opened the descriptor, and does not use it any more.
    unsafe { libc::syscall(libc::SYS_close, file) };
}

/// Writes all bytes, however often a signal interrupts that.
pub(super) fn write_all(to: c_int, mut bytes: &[u8]) -> Result<(), c_int> {
    while !bytes.is_empty() {
        // SAFETY: `bytes` is that many readable bytes.
        match check(unsafe { libc::syscall(libc::SYS_write, to, bytes.as_ptr(), bytes.len()) }) {
            // A file that takes nothing would take forever.
            Ok(0) => return Err(libc::EIO),
            Ok(written) => bytes = &bytes[written..],
            Err(libc::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads at most as many bytes as there is room for; returns how many.
pub(super) fn read(from: c_int, to: &mut [u8]) -> Result<usize, c_int> {
    // SAFETY: `to` is that many writable bytes.
    check(unsafe { libc::syscall(libc::SYS_read, from, to.as_mut_ptr(), to.len()) })
}

/// Reads as [`read`] does, but from an offset of the file.
pub(super) fn read_at(from: c_int, offset: i64, to: &mut [u8]) -> Result<usize, c_int> {
    // SAFETY: `to` is that many writable bytes.
    check(unsafe { libc::syscall(libc::SYS_pread64, from, to.as_mut_ptr(), to.len(), offset) })
}

/// Gives a file another name, and removes a file that has it.
pub(super) fn rename(from: &CStr, to: &CStr) -> Result<(), c_int> {
    let (from, to, here, flags) = (from.as_ptr(), to.as_ptr(), libc::AT_FDCWD, 0);
    // SAFETY: both names are C strings.
    check(unsafe { libc::syscall(libc::SYS_renameat2, here, from, here, to, flags) })?;
    Ok(())
}

/// Removes a file's name, if it is there.
pub(super) fn unlink(path: &CStr) {
    // SAFETY: the name is a C string.
    unsafe { libc::syscall(libc::SYS_unlinkat, libc::AT_FDCWD, path.as_ptr(), 0) };
}

/// Returns the type of a file, of a link itself; `None` if there is no file.
pub(super) fn file_type(path: &CStr) -> Option<libc::mode_t> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    let (here, flags) = (libc::AT_FDCWD, libc::AT_SYMLINK_NOFOLLOW);
    // SAFETY: the path is a C string. The kernel has written `status` if the call succeeds.
    unsafe {
        let (path, to) = (path.as_ptr(), status.as_mut_ptr());
        check(libc::syscall(libc::SYS_newfstatat, here, path, to, flags)).ok()?;
        Some(status.assume_init_ref().st_mode & libc::S_IFMT)
    }
}

/// The signals that a failed write sends, as the kernel's set.
const WRITE_SIGNALS: u64 = 1 << (libc::SIGPIPE - 1) | 1 << (libc::SIGXFSZ - 1);

/// Runs a function that writes, without the signals that a failed write sends to this thread.
pub(super) fn without_write_signals(
    write: impl FnOnce() -> Result<(), c_int>,
) -> Result<(), c_int> {
    let set = change_mask(libc::SIG_BLOCK, WRITE_SIGNALS);
    let written = write();
    // A signal that the program gets from elsewhere stays pending.
    let sent = match written {
        Err(libc::EPIPE) => 1 << (libc::SIGPIPE - 1),
        Err(libc::EFBIG) => 1 << (libc::SIGXFSZ - 1),
        _ => 0_u64,
    };
    if sent != 0 {
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let no_info = ptr::null_mut::<libc::siginfo_t>();
        let bytes = size_of::<u64>();
        // SAFETY: the set has that many bytes, and the time is valid.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigtimedwait,
                &raw const sent,
                no_info,
                &raw const now,
                bytes,
            )
        };
    }
    change_mask(libc::SIG_SETMASK, set);
    written
}

/// Changes this thread's set of blocked signals; returns the set before.
fn change_mask(how: c_int, set: u64) -> u64 {
    let mut before = 0_u64;
    // SAFETY: both sets have the size that the kernel is told.
    unsafe {
        let (new, old) = (&raw const set, &raw mut before);
        libc::syscall(libc::SYS_rt_sigprocmask, how, new, old, size_of::<u64>())
    };
    before
}

/// Lets later writes to a file wait, which was opened without waiting.
pub(super) fn let_wait(file: c_int) {
    // SAFETY: the arguments are integers.
    unsafe { libc::syscall(libc::SYS_fcntl, file, libc::F_SETFL, libc::O_APPEND) };
}

//! The profile in a file, which appears there as a whole or not at all.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_int};
use core::mem::MaybeUninit;

use thiscpu::__internal::{Lock, save_errno};

use super::dump;

/// Room for a path, the suffix of another process, and that of a temporary file.
const NAME_BYTES: usize = libc::PATH_MAX as usize + 64;

/// The two names, which would take too much of a signal stack.
struct Names(UnsafeCell<[[u8; NAME_BYTES]; 2]>);

// SAFETY: the holder of `LOCK` uses them.
unsafe impl Sync for Names {}

static NAMES: Names = Names(UnsafeCell::new([[0; NAME_BYTES]; 2]));
static LOCK: Lock = Lock::new();

/// Writes the profile to a file: `path`, or `path.PID` if `owner` is another process.
///
/// The text goes to a temporary file beside it, which then takes the name. A device or a pipe is
/// written to, whichever process this is. Returns false, and does nothing, if a thread is writing a
/// profile to a file now. Allocates nothing; may be called from a signal handler.
///
/// # Errors
///
/// The number of the error that kept the file from being written. It is as it was then.
pub fn write_file(path: &CStr, owner: libc::pid_t) -> Result<bool, c_int> {
    let _errno = save_errno();
    let Some(_guard) = LOCK.try_lock() else { return Ok(false) };
    if is_special(path) {
        return write_to(path, 0).map(|()| true);
    }
    // SAFETY: this thread has the lock.
    let [name, temporary] = unsafe { &mut *NAMES.0.get() };
    // SAFETY: getpid has no preconditions.
    let process = unsafe { libc::getpid() };
    let suffix = if process == owner { None } else { Some(process) };
    let name = join(name, path, suffix, c"")?;
    let temporary = join(temporary, path, Some(process), c".tmp")?;
    let written = write_to(temporary, libc::O_CREAT | libc::O_TRUNC);
    // SAFETY: both names are C strings.
    let rename = || check(unsafe { libc::rename(temporary.as_ptr(), name.as_ptr()) });
    let renamed = written.and_then(|()| rename());
    if renamed.is_err() {
        // SAFETY: the name is a C string.
        unsafe { libc::unlink(temporary.as_ptr()) };
    }
    renamed.map(|_| true)
}

/// Returns whether a file exists that is not a regular one, such as a device or a pipe.
fn is_special(path: &CStr) -> bool {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the path is a C string, and stat has written `status` if it returns 0.
    unsafe {
        libc::stat(path.as_ptr(), status.as_mut_ptr()) == 0
            && status.assume_init_ref().st_mode & libc::S_IFMT != libc::S_IFREG
    }
}

fn write_to(path: &CStr, flags: c_int) -> Result<(), c_int> {
    let flags = flags | libc::O_WRONLY | libc::O_CLOEXEC;
    // SAFETY: the path is a C string, and the mode an integer.
    let file = check(unsafe { libc::open(path.as_ptr(), flags, 0o666) })?;
    let written = dump::write(file);
    // SAFETY: this function has opened the file.
    unsafe { libc::close(file) };
    written
}

/// Returns the result of a system call, or the number of its error.
fn check(result: c_int) -> Result<c_int, c_int> {
    // SAFETY: the address is that of this thread's `errno`.
    if result < 0 { Err(unsafe { *libc::__errno_location() }) } else { Ok(result) }
}

/// Returns the path with a dot and the process, if there is one, and an ending.
fn join<'b>(
    to: &'b mut [u8; NAME_BYTES],
    path: &CStr,
    process: Option<libc::pid_t>,
    ending: &CStr,
) -> Result<&'b CStr, c_int> {
    let mut digits = [0; 12];
    let mut first = digits.len();
    let mut rest = process.unwrap_or(0);
    while rest > 0 {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let dot: &[u8] = if process.is_some() { b"." } else { b"" };
    let mut filled = 0;
    for part in [path.to_bytes(), dot, &digits[first..], ending.to_bytes_with_nul()] {
        let end = filled + part.len();
        to.get_mut(filled..end).ok_or(libc::ENAMETOOLONG)?.copy_from_slice(part);
        filled = end;
    }
    CStr::from_bytes_with_nul(&to[..filled]).map_err(|_| libc::EINVAL)
}

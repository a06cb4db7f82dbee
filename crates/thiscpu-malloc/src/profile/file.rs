//! The profile in a file, which appears there as a whole or not at all.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_int};

use thiscpu::__internal::{Lock, save_errno};

use super::{dump, system};

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
/// written to, whichever process this is. A link is followed, and its file appended to. Returns
/// false, and does nothing, if a thread is writing a profile to a file now. Allocates nothing; may
/// be called from a signal handler.
///
/// # Errors
///
/// The number of the error that kept the file from being written. An existing
/// regular file is then unchanged; a device or pipe may have part of the text.
pub fn write_file(path: &CStr, owner: libc::pid_t) -> Result<bool, c_int> {
    let _errno = save_errno();
    let Some(_guard) = LOCK.try_lock() else { return Ok(false) };
    if is_special(path) {
        // A pipe that nobody reads must not stop the program.
        let flags = libc::O_CREAT | libc::O_APPEND | libc::O_NONBLOCK;
        return write_to(path, flags).map(|()| true);
    }
    // SAFETY: this thread has the lock.
    let [name, temporary] = unsafe { &mut *NAMES.0.get() };
    // SAFETY: getpid has no preconditions.
    let process = unsafe { libc::getpid() };
    let suffix = if process == owner { None } else { Some(process) };
    let name = join(name, path, suffix, c"")?;
    let temporary = join(temporary, path, Some(process), c".tmp")?;
    // Another's file or link of this name is not written through.
    system::unlink(temporary);
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
    let renamed = write_to(temporary, flags).and_then(|()| system::rename(temporary, name));
    if renamed.is_err() {
        system::unlink(temporary);
    }
    renamed.map(|()| true)
}

/// Returns whether a file exists that is not a regular one: a device, a pipe or a link.
fn is_special(path: &CStr) -> bool {
    system::file_type(path).is_some_and(|kind| kind != libc::S_IFREG)
}

fn write_to(path: &CStr, flags: c_int) -> Result<(), c_int> {
    let file = system::open(path, flags | libc::O_WRONLY | libc::O_NOCTTY)?;
    if flags & libc::O_NONBLOCK != 0 {
        system::let_wait(file);
    }
    let written = dump::write(file);
    system::close(file);
    written
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

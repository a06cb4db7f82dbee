//! A mount namespace in which this process sees other file systems, or no `/sys`.

use std::ffi::CStr;
use std::io;

/// Checks that a process can hide `/sys` from itself; call it in a process of its own.
pub(crate) fn can_hide_sys() -> Result<(), String> {
    hide_sys().map_err(|error| format!("needs a mount namespace: {error}"))
}

/// Mounts an empty file system over `/sys`, for this process only; it must have one thread.
pub(crate) fn hide_sys() -> io::Result<()> {
    mount_tmpfs(c"/sys", c"")?;
    match std::fs::exists("/sys/devices")? {
        true => Err(io::Error::other("/sys is still there")),
        false => Ok(()),
    }
}

/// Mounts an empty file system, for this process only; it must have one thread.
///
/// The options are those of tmpfs, such as `size=1m`.
pub(crate) fn mount_tmpfs(target: &CStr, options: &CStr) -> io::Result<()> {
    // SAFETY: `unshare` changes the process's view of files, not its memory.
    let unshared = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            || libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) == 0
    };
    if !unshared {
        return Err(io::Error::last_os_error());
    }
    // Makes all mounts private first, so the next mount stays in this namespace.
    mount(c"none", c"/", libc::MS_REC | libc::MS_PRIVATE, c"")?;
    mount(c"tmpfs", target, 0, options)
}

fn mount(kind: &CStr, target: &CStr, flags: libc::c_ulong, options: &CStr) -> io::Result<()> {
    let (kind, options) = (kind.as_ptr(), options.as_ptr().cast());
    // SAFETY: all texts are NUL-terminated.
    match unsafe { libc::mount(kind, target.as_ptr(), kind, flags, options) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

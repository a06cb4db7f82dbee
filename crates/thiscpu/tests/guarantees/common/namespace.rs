//! A mount namespace in which this process sees no `/sys`.

use std::ffi::CStr;
use std::io;

/// Checks that a process can hide `/sys` from itself; call it in a process of its own.
pub(crate) fn can_hide_sys() -> Result<(), String> {
    hide_sys().map_err(|error| format!("needs a mount namespace: {error}"))
}

/// Mounts an empty file system over `/sys`, for this process only; it must have one thread.
pub(crate) fn hide_sys() -> io::Result<()> {
    // SAFETY: `unshare` changes the process's view of files, not its memory.
    let unshared = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            || libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) == 0
    };
    if !unshared {
        return Err(io::Error::last_os_error());
    }
    // Makes all mounts private first, so the next mount stays in this namespace.
    mount(c"none", c"/", libc::MS_REC | libc::MS_PRIVATE)?;
    mount(c"tmpfs", c"/sys", 0)?;
    match std::fs::exists("/sys/devices")? {
        true => Err(io::Error::other("/sys is still there")),
        false => Ok(()),
    }
}

fn mount(kind: &CStr, target: &CStr, flags: libc::c_ulong) -> io::Result<()> {
    let kind = kind.as_ptr();
    // SAFETY: both names are NUL-terminated, and a null pointer means no options.
    match unsafe { libc::mount(kind, target.as_ptr(), kind, flags, std::ptr::null()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

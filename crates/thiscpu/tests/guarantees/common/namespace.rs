//! A process that sees no `/sys`, without changing the machine for others.

use std::ffi::CStr;
use std::io;

/// For scenarios that hide `/sys`; tried in a process of its own.
pub(crate) fn can_hide_sys() -> Result<(), String> {
    hide_sys().map_err(|error| format!("needs a mount namespace: {error}"))
}

/// Mounts an empty file system over `/sys`, for this process only, which has one thread.
pub(crate) fn hide_sys() -> io::Result<()> {
    // SAFETY: unshare changes what this process sees, not its memory.
    let unshared = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            || libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) == 0
    };
    if !unshared {
        return Err(io::Error::last_os_error());
    }
    // First, so that the mount after it stays here.
    mount(c"none", c"/", libc::MS_REC | libc::MS_PRIVATE)?;
    mount(c"tmpfs", c"/sys", 0)?;
    match std::fs::exists("/sys/devices")? {
        true => Err(io::Error::other("/sys is still there")),
        false => Ok(()),
    }
}

fn mount(kind: &CStr, target: &CStr, flags: libc::c_ulong) -> io::Result<()> {
    let kind = kind.as_ptr();
    // SAFETY: the names end with zero bytes; no options are passed.
    match unsafe { libc::mount(kind, target.as_ptr(), kind, flags, std::ptr::null()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

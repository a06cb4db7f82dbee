//! A terminal for programs that tests run.

use std::{
    fs::File,
    io::Read as _,
    os::fd::{FromRawFd as _, OwnedFd},
    ptr,
};

/// Opens a terminal and returns the ends of the test and of the program.
///
/// # Panics
///
/// If the system has no terminal left.
pub fn open(columns: u16) -> (File, OwnedFd) {
    let (mut ours, mut theirs) = (0, 0);
    let size = libc::winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let null = ptr::null_mut();
    // SAFETY: the pointers are to locals, or null where the call allows it.
    assert_eq!(unsafe { libc::openpty(&mut ours, &mut theirs, null, null.cast(), &size) }, 0);
    for end in [ours, theirs] {
        // A program that had the test's end too would see no hangup.
        // SAFETY: the call has no pointers, and the descriptor is this function's own.
        unsafe { libc::fcntl(end, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    // SAFETY: the call has just opened both, and nobody else owns them.
    unsafe { (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) }
}

/// Returns all that a program writes until it ends, without control sequences.
pub fn text(mut ours: File) -> String {
    let (mut seen, mut chunk) = (Vec::new(), [0; 4096]);
    // Reading fails once the program, the only other holder, has ended.
    while let Ok(count @ 1..) = ours.read(&mut chunk) {
        seen.extend_from_slice(&chunk[..count]);
    }
    let text = String::from_utf8_lossy(&seen);
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    let rest = parts.map(|part| part.split_once(|c: char| c.is_ascii_alphabetic()));
    first + &rest.flatten().map(|(_, after)| after).collect::<String>()
}

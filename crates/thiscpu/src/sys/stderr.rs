//! Lines of text for people, written without allocation, in one system call.

use core::fmt::{self, Write as _};

use super::errno;

/// The size of the buffer, in bytes; longer lines are cut off.
const LINE_BYTES: usize = 512;

struct Line {
    text: [u8; LINE_BYTES],
    filled: usize,
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // The last byte is reserved for the newline.
        let room = LINE_BYTES - 1 - self.filled;
        let taken = text.len().min(room);
        self.text[self.filled..self.filled + taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.filled += taken;
        if taken == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

/// Writes `what` and a newline to the file descriptor `to`, and ignores errors.
///
/// Cuts the line off after 511 bytes. Allocates nothing, takes no lock and keeps `errno`;
/// async-signal-safe.
pub fn write_line(to: i32, what: fmt::Arguments<'_>) {
    let _errno = errno::save();
    let mut line = Line { text: [0; LINE_BYTES], filled: 0 };
    // An error means that the line was cut off.
    let _ = line.write_fmt(what);
    line.text[line.filled] = b'\n';
    // The C library's function is a cancellation point.
    //
    // SAFETY: the buffer has `filled` bytes of text and the newline.
    unsafe { libc::syscall(libc::SYS_write, to, line.text.as_ptr(), line.filled + 1) };
}

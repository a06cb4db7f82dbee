//! A line for people, said without allocation, without a lock, and in one system call.

use core::fmt::{self, Write as _};

use super::errno;

/// Longer lines are cut off.
const LINE_BYTES: usize = 512;

struct Line {
    text: [u8; LINE_BYTES],
    filled: usize,
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // The last byte is kept for the end of the line.
        let room = LINE_BYTES - 1 - self.filled;
        let taken = text.len().min(room);
        self.text[self.filled..self.filled + taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.filled += taken;
        if taken == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

/// Writes `what` and the end of a line to the file `to`; nobody is told if that fails. Keeps `errno`.
/// Async-signal-safe.
pub fn write_line(to: i32, what: fmt::Arguments<'_>) {
    let _errno = errno::save();
    let mut line = Line { text: [0; LINE_BYTES], filled: 0 };
    // An error says that the line was cut off.
    let _ = line.write_fmt(what);
    line.text[line.filled] = b'\n';
    // SAFETY: that many bytes of the line are there.
    unsafe { libc::write(to, line.text.as_ptr().cast(), line.filled + 1) };
}

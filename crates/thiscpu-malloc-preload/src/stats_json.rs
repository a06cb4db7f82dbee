//! The statistics as one line of JSON, at exit: to standard error, or to a file.

use core::ffi::CStr;
use core::fmt::{self, Write};

use thiscpu_malloc::write_stats_json;

/// Appends the line to a file, so processes that share the file each add theirs.
pub(crate) fn append(path: &CStr) {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
    // SAFETY: the path is a C string, and the mode is an integer.
    let file = unsafe { libc::open(path.as_ptr(), flags, 0o666) };
    if file >= 0 {
        print(file);
        // SAFETY: this function has opened the descriptor.
        unsafe { libc::close(file) };
    }
}

/// Writes the line in one piece if it fits the buffer, so that lines of processes do not mix.
pub(crate) fn print(to: i32) {
    let mut out = Descriptor { to, piece: [0; 16 * 1024], filled: 0 };
    let _ = write_stats_json(&mut out).and_then(|()| out.write_str("\n"));
    out.flush();
}

struct Descriptor {
    to: i32,
    piece: [u8; 16 * 1024],
    filled: usize,
}

impl Descriptor {
    fn flush(&mut self) {
        let mut rest = &self.piece[..self.filled];
        while !rest.is_empty() {
            // SAFETY: `rest` is that many readable bytes.
            let written = unsafe { libc::write(self.to, rest.as_ptr().cast(), rest.len()) };
            // Errors are ignored: the process ends, and has no one to report them to.
            let Some(written) = usize::try_from(written).ok().filter(|&written| written > 0) else {
                break;
            };
            rest = &rest[written..];
        }
        self.filled = 0;
    }
}

impl Write for Descriptor {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            if self.filled == self.piece.len() {
                self.flush();
            }
            self.piece[self.filled] = byte;
            self.filled += 1;
        }
        Ok(())
    }
}

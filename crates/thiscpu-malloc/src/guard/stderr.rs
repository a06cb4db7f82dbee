//! Writing to standard error from anywhere: no lock, no allocation.

use core::fmt::{self, Write as _};

/// Gathers text, so that a line is one write and others' lines do not come in between.
struct LineBuffer {
    bytes: [u8; 512],
    len: usize,
}

impl LineBuffer {
    fn flush(&mut self) {
        let mut rest = &self.bytes[..self.len];
        while !rest.is_empty() {
            // SAFETY: the bytes are there.
            let written =
                unsafe { libc::write(libc::STDERR_FILENO, rest.as_ptr().cast(), rest.len()) };
            match usize::try_from(written) {
                Ok(written) => rest = &rest[written..],
                // SAFETY: the address of this thread's errno.
                Err(_) if unsafe { *libc::__errno_location() } == libc::EINTR => {}
                // Nobody can be told.
                Err(_) => break,
            }
        }
        self.len = 0;
    }
}

impl fmt::Write for LineBuffer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            if self.len == self.bytes.len() {
                self.flush();
            }
            self.bytes[self.len] = byte;
            self.len += 1;
        }
        Ok(())
    }
}

/// Writes a line. Changes `errno`.
pub(super) fn write_line(text: fmt::Arguments<'_>) {
    let mut line = LineBuffer { bytes: [0; 512], len: 0 };
    // Neither fails.
    let _ = line.write_fmt(text);
    let _ = line.write_char('\n');
    line.flush();
}

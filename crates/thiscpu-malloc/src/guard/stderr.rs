//! Writes lines to standard error from any context: takes no lock and allocates nothing.

use core::fmt::{self, Write as _};

/// Collects a line, so that it is written at once and other writers cannot split it.
struct LineBuffer {
    bytes: [u8; 512],
    len: usize,
}

impl LineBuffer {
    fn flush(&mut self) {
        let mut rest = &self.bytes[..self.len];
        while !rest.is_empty() {
            let (to, from, bytes) = (libc::STDERR_FILENO, rest.as_ptr(), rest.len());
            // The C library's function is a cancellation point.
            //
            // SAFETY: `rest` is that many readable bytes.
            let written = unsafe { libc::syscall(libc::SYS_write, to, from, bytes) };
            match usize::try_from(written) {
                Ok(written) => rest = &rest[written..],
                // SAFETY: the address is that of this thread's `errno`.
                Err(_) if unsafe { *libc::__errno_location() } == libc::EINTR => {}
                // There is nowhere to report this error to.
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

/// Writes a line of any length. Changes `errno`.
pub(super) fn write_line(text: fmt::Arguments<'_>) {
    let mut line = LineBuffer { bytes: [0; 512], len: 0 };
    // `LineBuffer` never returns an error.
    let _ = line.write_fmt(text);
    let _ = line.write_char('\n');
    line.flush();
}

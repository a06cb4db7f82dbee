//! The statistics as one line of JSON, at exit: to standard error, or to a file.
//!
//! System calls are bare, because the C library's functions are cancellation points.

use core::ffi::CStr;
use core::fmt::{self, Write};
use core::{ptr, slice};

use thiscpu_malloc::write_stats_json;

/// Appends the line to a file, so processes that share the file each add theirs.
pub(crate) fn append(path: &CStr) {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
    // SAFETY: the path is a C string, and the mode is an integer.
    let file =
        unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o666) };
    if file >= 0 {
        print(file as i32);
        // SAFETY: this function has opened the descriptor.
        unsafe { libc::syscall(libc::SYS_close, file) };
    }
}

/// Writes the line in one piece, so that lines of processes do not mix.
///
/// Writes nothing if there is no memory for the line.
pub(crate) fn print(to: i32) {
    let (access, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping aliases nothing.
    let buffer = unsafe { libc::mmap(ptr::null_mut(), LINE_BYTES, access, flags, -1, 0) };
    if buffer == libc::MAP_FAILED {
        return;
    }
    // SAFETY: the mapping has `LINE_BYTES` zeroed bytes, and nothing else refers to it.
    let piece = unsafe { slice::from_raw_parts_mut(buffer.cast::<u8>(), LINE_BYTES) };
    let mut out = Descriptor { to, piece, filled: 0 };
    let _ = write_stats_json(&mut out).and_then(|()| out.write_str("\n"));
    out.flush();
    // SAFETY: the buffer is not used any more.
    unsafe { libc::munmap(buffer, LINE_BYTES) };
}

/// Enough for all size classes with numbers of 20 digits, and two paths of escaped bytes.
const LINE_BYTES: usize = 128 * 1024;

struct Descriptor<'b> {
    to: i32,
    piece: &'b mut [u8],
    filled: usize,
}

impl Descriptor<'_> {
    fn flush(&mut self) {
        let mut rest = &self.piece[..self.filled];
        while !rest.is_empty() {
            // SAFETY: `rest` is that many readable bytes, and `errno` is this thread's.
            let (written, error) = unsafe {
                let written = libc::syscall(libc::SYS_write, self.to, rest.as_ptr(), rest.len());
                (written, *libc::__errno_location())
            };
            match usize::try_from(written) {
                Ok(written @ 1..) => rest = &rest[written..],
                Err(_) if error == libc::EINTR => {}
                // Other errors are ignored: the process ends, and has no one to report them to.
                _ => break,
            }
        }
        self.filled = 0;
    }
}

impl Write for Descriptor<'_> {
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

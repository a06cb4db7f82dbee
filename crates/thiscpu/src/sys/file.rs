//! Files, read by bare system calls in small pieces.
//!
//! The C library's functions are cancellation points. A thread with a pending cancel would unwind
//! from the middle of this library, and through its caller's frames. Pieces are small because the
//! first use of the library may be in a signal handler that has a small stack.

use core::ffi::CStr;

/// The size of a piece, in bytes.
const PIECE_BYTES: usize = 256;

/// A file that is open for reading.
pub(super) struct File(i32);

impl File {
    pub(super) fn open(path: &CStr, flags: i32) -> Option<File> {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | flags;
        // SAFETY: `path` ends with a zero byte.
        let file =
            unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0) };
        // Not `then_some`, which would construct a File of -1 and close it.
        (file >= 0).then(|| File(file as i32))
    }

    /// Reads into `buffer`, and returns the number of bytes; 0 at the end, `None` on an error.
    fn read(&self, buffer: &mut [u8]) -> Option<usize> {
        // SAFETY: the buffer is valid for writes of its length.
        let read =
            unsafe { libc::syscall(libc::SYS_read, self.0, buffer.as_mut_ptr(), buffer.len()) };
        usize::try_from(read).ok()
    }

    /// Reads directory entries into `buffer`; returns the number of bytes, 0 at the end.
    pub(super) fn read_entries(&self, buffer: &mut [u64]) -> Option<usize> {
        let (at, bytes) = (buffer.as_mut_ptr(), size_of_val(buffer));
        // SAFETY: the buffer is valid for writes of its length and aligned for directory entries.
        let read = unsafe { libc::syscall(libc::SYS_getdents64, self.0, at, bytes) };
        usize::try_from(read).ok()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: this value owns the descriptor.
        unsafe { libc::syscall(libc::SYS_close, self.0) };
    }
}

/// Calls `visit` with each byte of a file; `None` if it cannot be read to its end.
pub(super) fn each_byte(path: &CStr, mut visit: impl FnMut(u8)) -> Option<()> {
    let file = File::open(path, 0)?;
    let mut piece = [0; PIECE_BYTES];
    loop {
        match file.read(&mut piece)? {
            0 => return Some(()),
            read => piece[..read].iter().for_each(|&byte| visit(byte)),
        }
    }
}

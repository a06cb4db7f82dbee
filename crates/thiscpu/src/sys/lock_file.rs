//! Locks on bytes of a file, which the kernel releases when their process has ended.
//!
//! They are locks of an open file description (`F_OFD_SETLK`). The description is opened by this
//! library, and no other code knows it. So it stays locked until its last descriptor is closed: by
//! the end of the process, by `exec`, or by a program that closes descriptors of others.

use core::ffi::CStr;
use std::os::fd::RawFd;

use super::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use super::errno;
use super::shared_file::{SharedFile, Status, checked, nonce, open_again, status_of};

/// An open file description of this library's own, or none.
///
/// A program may close its descriptor, and open another file, or even this one, with that number.
/// So the description has a mark: a random position, which nobody reads or writes at. Each use
/// first compares the file and the mark.
#[derive(Debug)]
pub(crate) struct LockFile {
    /// The descriptor, or [`NONE`].
    fd: AtomicU32,
    device: AtomicU64,
    inode: AtomicU64,
    mark: AtomicU64,
}

/// Marks are random numbers below this, which is a valid position on every file system.
const MARKS: u64 = 1 << 40;

/// No descriptor.
const NONE: u32 = -1_i32 as u32;

impl LockFile {
    pub(crate) const fn new() -> LockFile {
        LockFile {
            fd: AtomicU32::new(NONE),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
            mark: AtomicU64::new(0),
        }
    }

    /// Opens a file again, after [`close`](Self::close).
    ///
    /// `path` is the path that it was opened by. The caller holds a lock against other calls of
    /// this function and of `close`.
    pub(crate) fn open(&self, file: &SharedFile, path: Option<&CStr>) -> Result<(), i32> {
        let fd = open_again(file, path)?;
        let marked = status_of(fd).and_then(|Status { device, inode, .. }| {
            let mark = nonce() % MARKS;
            let (at, from) = (mark as libc::off_t, libc::SEEK_SET);
            // SAFETY: the call takes numbers.
            checked(unsafe { libc::syscall(libc::SYS_lseek, fd, at, from) })?;
            Ok((device, inode, mark))
        });
        let (device, inode, mark) = marked.inspect_err(|_| close(fd))?;
        self.device.store(device, Relaxed);
        self.inode.store(inode, Relaxed);
        self.mark.store(mark, Relaxed);
        // Release: pairs with the Acquire in `own_fd`. A fork between two of these stores leaves a
        // child without a descriptor that it knows.
        self.fd.store(fd as u32, Release);
        Ok(())
    }

    /// Returns the descriptor, unless it is closed or another file's.
    fn own_fd(&self) -> Option<RawFd> {
        // Acquire: pairs with the Release in `open`.
        let fd = self.fd.load(Acquire) as RawFd;
        if fd < 0 {
            return None;
        }
        let status = status_of(fd).ok()?;
        let file = (self.device.load(Relaxed), self.inode.load(Relaxed));
        // SAFETY: the call takes numbers, and moves nothing.
        let at = checked(unsafe { libc::syscall(libc::SYS_lseek, fd, 0, libc::SEEK_CUR) });
        let is_own = status.file() == file && at == Ok(self.mark.load(Relaxed) as i64);
        is_own.then_some(fd)
    }

    /// Returns whether the description is open.
    pub(crate) fn is_open(&self) -> bool {
        self.own_fd().is_some()
    }

    /// Closes the descriptor, if it is this file's. Async-signal-safe.
    pub(crate) fn close(&self) {
        let own = self.own_fd();
        self.fd.store(NONE, Relaxed);
        own.into_iter().for_each(close);
    }

    /// Locks a byte; returns whether no other description has locked it.
    pub(crate) fn try_lock(&self, at: u64) -> Result<bool, i32> {
        let fd = self.own_fd().ok_or(libc::EBADF)?;
        match byte_call(fd, libc::F_OFD_SETLK, libc::F_WRLCK, at) {
            Err(libc::EAGAIN | libc::EACCES) => Ok(false),
            result => result.map(|_| true),
        }
    }

    /// Returns whether another description has locked a byte.
    pub(crate) fn is_locked(&self, at: u64) -> Result<bool, i32> {
        is_locked_for(self.own_fd().ok_or(libc::EBADF)?, at)
    }

    /// Unlocks a byte.
    pub(crate) fn unlock(&self, at: u64) {
        if let Some(fd) = self.own_fd() {
            let _ = byte_call(fd, libc::F_OFD_SETLK, libc::F_UNLCK, at);
        }
    }
}

/// Returns whether a description other than the file's own has locked a byte.
pub(crate) fn is_locked(file: &SharedFile, at: u64) -> Result<bool, i32> {
    is_locked_for(file.own_fd()?, at)
}

fn is_locked_for(fd: RawFd, at: u64) -> Result<bool, i32> {
    let kind = byte_call(fd, libc::F_OFD_GETLK, libc::F_WRLCK, at)?;
    Ok(kind != libc::F_UNLCK as libc::c_short)
}

/// Makes a call on the lock of a byte, and returns the kind of lock that the kernel reports.
fn byte_call(fd: RawFd, call: i32, kind: i32, at: u64) -> Result<libc::c_short, i32> {
    // SAFETY: all zeroes is a valid `flock`.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = at as libc::off_t;
    lock.l_len = 1;
    // SAFETY: the structure is valid for reads and writes.
    checked(unsafe { libc::syscall(libc::SYS_fcntl, fd, call, &raw mut lock) })?;
    Ok(lock.l_type)
}

fn close(fd: RawFd) {
    let _errno = errno::save();
    // SAFETY: callers own the descriptor.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

//! Files that processes map together: on a tmpfs by name, or without one.
//!
//! All calls are bare system calls, because the C library's are cancellation points.

use core::ffi::CStr;
use core::ptr;
use core::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::os::fd::{AsRawFd as _, FromRawFd as _, IntoRawFd as _, OwnedFd, RawFd};

use super::slots::{Slot, Slots};
use super::{errno, fork};

/// An open file, and which one it is.
///
/// A program may close descriptors that are not its own, as `closefrom` does, and the number may
/// then belong to another file. So each use first checks that it still is this file. The number
/// may also belong to a later value of this type, of the same file: that one takes it away.
#[derive(Debug)]
pub(crate) struct SharedFile {
    /// The descriptor, or [`CLOSED`].
    fd: &'static Slot<AtomicI32>,
    device: u64,
    inode: u64,
}

/// The descriptors of all values.
static DESCRIPTORS: Slots<AtomicI32> = Slots::new();
/// In place of a descriptor that the program has closed.
const CLOSED: RawFd = -1;

/// What a file's inode says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Status {
    pub(super) device: u64,
    pub(super) inode: u64,
    /// The bits of the mode that say what it is, such as `S_IFREG`.
    pub(crate) kind: u32,
    /// In bytes.
    pub(crate) len: u64,
    /// The user who owns it.
    pub(crate) owner: u32,
    /// The permission bits.
    pub(crate) mode: u32,
}

impl Status {
    /// Returns the numbers that identify the file.
    pub(super) fn file(&self) -> (u64, u64) {
        (self.device, self.inode)
    }
}

/// Returns the result of a system call, or its error number.
pub(super) fn checked(result: libc::c_long) -> Result<i64, i32> {
    match result {
        -1 => Err(errno::last()),
        result => Ok(result),
    }
}

pub(super) fn status_of(fd: RawFd) -> Result<Status, i32> {
    // SAFETY: all zeroes is a valid `stat`.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: `stat` is valid for writes.
    checked(unsafe { libc::syscall(libc::SYS_fstat, fd, &raw mut stat) })?;
    Ok(Status {
        device: stat.st_dev,
        inode: stat.st_ino,
        kind: stat.st_mode & libc::S_IFMT,
        len: stat.st_size as u64,
        owner: stat.st_uid,
        mode: stat.st_mode & 0o7777,
    })
}

fn open(path: &CStr, flags: i32, mode: u32) -> Result<RawFd, i32> {
    let flags = flags | libc::O_CLOEXEC;
    // SAFETY: `path` ends with a zero byte.
    let fd = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, mode) };
    checked(fd).map(|fd| fd as RawFd)
}

/// Returns a descriptor that no program takes for a standard stream.
fn above_standard_streams(fd: OwnedFd) -> Result<OwnedFd, i32> {
    const FIRST: RawFd = libc::STDERR_FILENO + 1;
    if fd.as_raw_fd() >= FIRST {
        return Ok(fd);
    }
    let duplicate = libc::F_DUPFD_CLOEXEC;
    // SAFETY: the call takes numbers.
    let other = unsafe { libc::syscall(libc::SYS_fcntl, fd.as_raw_fd(), duplicate, FIRST) };
    // SAFETY: a system call has just returned the descriptor, which nobody else knows.
    checked(other).map(|other| unsafe { OwnedFd::from_raw_fd(other as RawFd) })
}

impl SharedFile {
    /// Takes over a descriptor, which is closed on exec from now on.
    pub(crate) fn from_fd(fd: OwnedFd) -> Result<SharedFile, i32> {
        let (set, flag) = (libc::F_SETFD, libc::FD_CLOEXEC);
        // SAFETY: the call takes numbers.
        checked(unsafe { libc::syscall(libc::SYS_fcntl, fd.as_raw_fd(), set, flag) })?;
        let fd = above_standard_streams(fd)?;
        let Status { device, inode, .. } = status_of(fd.as_raw_fd())?;
        let number = fd.into_raw_fd();
        // The caller owns the descriptor. So if another value has its number, the program has
        // closed that one's.
        // Relaxed, also elsewhere: the number leads to nothing else in memory.
        for other in DESCRIPTORS.iter() {
            let _ = other.value.compare_exchange(number, CLOSED, Relaxed, Relaxed);
        }
        let fd = DESCRIPTORS.take();
        fd.value.store(number, Relaxed);
        Ok(SharedFile { fd, device, inode })
    }

    /// Returns the number of the descriptor, which may be another file's by now.
    fn number(&self) -> RawFd {
        self.fd.value.load(Relaxed)
    }

    fn from_new(fd: RawFd) -> Result<SharedFile, i32> {
        // SAFETY: a system call has just returned the descriptor, which nobody else knows.
        SharedFile::from_fd(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Creates a file without a name, which nobody can shrink.
    pub(crate) fn anonymous(name: &CStr) -> Result<SharedFile, i32> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: `name` ends with a zero byte.
        let create = |flags: libc::c_uint| unsafe {
            libc::syscall(libc::SYS_memfd_create, name.as_ptr(), flags)
        };
        // A system can refuse memory files that could be executed. Kernels before 6.3 do not know
        // the flag.
        let fd = match checked(create(flags | libc::MFD_NOEXEC_SEAL)) {
            Err(libc::EINVAL) => checked(create(flags)),
            result => result,
        };
        fd.and_then(|fd| SharedFile::from_new(fd as RawFd))
    }

    /// Creates a file in a directory that has no name yet.
    pub(crate) fn unnamed_in(directory: &CStr, mode: u32) -> Result<SharedFile, i32> {
        let file = open(directory, libc::O_TMPFILE | libc::O_RDWR, mode)?;
        let file = SharedFile::from_new(file)?;
        // The process's mask may have taken bits away.
        // SAFETY: the call takes numbers.
        checked(unsafe { libc::syscall(libc::SYS_fchmod, file.number(), mode) })?;
        Ok(file)
    }

    /// Opens a file that exists; not through a symbolic link at the end of the path.
    pub(crate) fn open(path: &CStr, to_write: bool) -> Result<SharedFile, i32> {
        let access = if to_write { libc::O_RDWR } else { libc::O_RDONLY };
        // Without O_NONBLOCK, a pipe with the name would wait for its other end.
        open(path, access | libc::O_NOFOLLOW | libc::O_NONBLOCK, 0).and_then(SharedFile::from_new)
    }

    /// Gives a file from [`unnamed_in`](Self::unnamed_in) a name that does not exist yet.
    pub(crate) fn link(&self, path: &CStr) -> Result<(), i32> {
        let mut magic = [0_u8; 32];
        let at = descriptor_path(self.number(), &mut magic);
        let (here, follow) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
        // SAFETY: both paths end with a zero byte.
        let by_proc = unsafe {
            libc::syscall(libc::SYS_linkat, here, at.as_ptr(), here, path.as_ptr(), follow)
        };
        match checked(by_proc) {
            // Without `/proc`, the kernel takes the descriptor itself (Linux 6.10).
            Err(libc::ENOENT) => {
                let (none, empty) = (c"".as_ptr(), libc::AT_EMPTY_PATH);
                // SAFETY: both paths end with a zero byte.
                let by_fd = unsafe {
                    libc::syscall(libc::SYS_linkat, self.number(), none, here, path.as_ptr(), empty)
                };
                checked(by_fd).map(drop)
            }
            other => other.map(drop),
        }
    }

    /// Removes a name.
    pub(crate) fn unlink(path: &CStr) -> Result<(), i32> {
        // SAFETY: `path` ends with a zero byte.
        let result = unsafe { libc::syscall(libc::SYS_unlinkat, libc::AT_FDCWD, path.as_ptr(), 0) };
        checked(result).map(drop)
    }

    /// Gives a file another name, and takes that name from the file that has it.
    pub(crate) fn rename(from: &CStr, to: &CStr) -> Result<(), i32> {
        let here = libc::AT_FDCWD;
        // SAFETY: both paths end with a zero byte.
        let result = unsafe {
            libc::syscall(libc::SYS_renameat2, here, from.as_ptr(), here, to.as_ptr(), 0)
        };
        checked(result).map(drop)
    }

    /// Reads the first words of the file; returns whether it has as many.
    pub(crate) fn read_start(&self, words: &mut [u64]) -> Result<bool, i32> {
        let (fd, bytes) = (self.own_fd()?, size_of_val(words));
        // SAFETY: the buffer is valid for writes of its length.
        let read = unsafe { libc::syscall(libc::SYS_pread64, fd, words.as_mut_ptr(), bytes, 0) };
        Ok(checked(read)? == bytes as i64)
    }

    /// Returns what the inode says, or `EBADF` if the descriptor is closed or another file's.
    pub(crate) fn status(&self) -> Result<Status, i32> {
        self.own().map(|(_, status)| status)
    }

    /// Returns the descriptor, or `EBADF` if it is closed or another file's.
    pub(crate) fn own_fd(&self) -> Result<RawFd, i32> {
        self.own().map(|(fd, _)| fd)
    }

    fn own(&self) -> Result<(RawFd, Status), i32> {
        let fd = self.number();
        let status = status_of(fd)?;
        let is_own = (status.device, status.inode) == (self.device, self.inode);
        if is_own { Ok((fd, status)) } else { Err(libc::EBADF) }
    }

    /// Returns whether somebody could shorten the file.
    pub(crate) fn can_shrink(&self) -> bool {
        // SAFETY: the call takes numbers. File systems that know no seals refuse it.
        let seals = unsafe { libc::syscall(libc::SYS_fcntl, self.number(), libc::F_GET_SEALS) };
        checked(seals).map_or(true, |seals| seals & i64::from(libc::F_SEAL_SHRINK) == 0)
    }

    /// Sets the length of a new file, which takes no memory by that.
    pub(crate) fn set_len(&self, bytes: u64) -> Result<(), i32> {
        let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: 0 };
        // SAFETY: the call is given a valid structure. If it fails, that is unchanged.
        unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
        if bytes > limit.rlim_cur {
            // The kernel would send a signal that ends the process.
            return Err(libc::EFBIG);
        }
        let len = bytes as libc::off_t;
        // SAFETY: the call takes numbers.
        checked(unsafe { libc::syscall(libc::SYS_ftruncate, self.number(), len) }).map(drop)
    }

    /// Forbids everybody to shrink an anonymous file.
    pub(crate) fn forbid_shrinking(&self) -> Result<(), i32> {
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
        // SAFETY: the call takes numbers.
        checked(unsafe { libc::syscall(libc::SYS_fcntl, self.number(), libc::F_ADD_SEALS, seals) })
            .map(drop)
    }

    /// Gives a range of the file memory, so that no later access to it can fail.
    ///
    /// A file that was shortened keeps its new length.
    pub(crate) fn allocate(&self, at: u64, bytes: u64) -> Result<(), i32> {
        let fd = self.own_fd()?;
        // A signal interrupts a call, which gives its memory back. A timer's signals would keep a
        // long call from its end.
        const PIECE: u64 = 256 << 10;
        let keep = libc::FALLOC_FL_KEEP_SIZE;
        let end = at + bytes;
        let mut at = at;
        while at < end {
            let (from, len) = (at as libc::off_t, PIECE.min(end - at) as libc::off_t);
            // SAFETY: the call takes numbers.
            match checked(unsafe { libc::syscall(libc::SYS_fallocate, fd, keep, from, len) }) {
                Err(libc::EINTR) => {}
                Err(errno) => return Err(errno),
                Ok(_) => at += PIECE,
            }
        }
        Ok(())
    }

    /// Maps the file, readable and perhaps writable, and returns the address.
    pub(crate) fn map(&self, bytes: usize, to_write: bool) -> Result<usize, i32> {
        let fd = self.own_fd()?;
        let access = if to_write { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        // SAFETY: a new mapping at an address that the kernel chooses aliases nothing of this
        // process that is not a mapping of the file too.
        let address =
            unsafe { libc::mmap(ptr::null_mut(), bytes, access, libc::MAP_SHARED, fd, 0) };
        if address == libc::MAP_FAILED {
            return Err(errno::last());
        }
        // A core dump would fill the holes of the file, for all processes that share it.
        // SAFETY: the advice does not change the contents of memory.
        unsafe { libc::madvise(address, bytes, libc::MADV_DONTDUMP) };
        Ok(address as usize)
    }
}

/// Opens a file again, for reading and writing: a new description, and a new descriptor.
///
/// `path` is the path that the file was opened by. It may lead to another file by now.
pub(super) fn open_again(file: &SharedFile, path: Option<&CStr>) -> Result<RawFd, i32> {
    let by_fd = file.own_fd().and_then(|fd| {
        let mut magic = [0_u8; 32];
        open(descriptor_path(fd, &mut magic), libc::O_RDWR, 0)
    });
    let new = by_fd.or_else(|errno| {
        let flags = libc::O_RDWR | libc::O_NOFOLLOW | libc::O_NONBLOCK;
        open(path.ok_or(errno)?, flags, 0).map_err(|_| errno)
    })?;
    // SAFETY: a system call has just returned the descriptor, which nobody else knows.
    let new = above_standard_streams(unsafe { OwnedFd::from_raw_fd(new) })?;
    match status_of(new.as_raw_fd())?.file() == (file.device, file.inode) {
        true => Ok(new.into_raw_fd()),
        false => Err(libc::ESTALE),
    }
}

/// Gives a mapped range of a file memory, without a descriptor (Linux 5.14).
///
/// # Safety
///
/// The range is mapped for writing by [`SharedFile::map`].
pub(crate) unsafe fn populate(address: usize, bytes: usize) -> Result<(), i32> {
    let (page, all) = (fork::page_bytes(), libc::MADV_POPULATE_WRITE);
    let start = address & !(page - 1);
    let len = address + bytes - start;
    // SAFETY: the advice touches pages of a mapping of the caller's, and does not change them.
    match checked(unsafe { libc::madvise(start as *mut _, len, all) }.into()) {
        // The file system has no memory, or the kernel does not know the advice.
        Err(libc::EFAULT) => Err(libc::ENOSPC),
        Err(libc::EINVAL) => Err(libc::EBADF),
        result => result.map(drop),
    }
}

/// Unmaps a file.
///
/// # Safety
///
/// The range is from [`SharedFile::map`], and no code uses it any more.
pub(crate) unsafe fn unmap(address: usize, bytes: usize) {
    // SAFETY: the caller guarantees that the range is a mapping of its own, and unused.
    unsafe { libc::munmap(address as *mut _, bytes) };
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        let _errno = errno::save();
        if let Ok(fd) = self.own_fd() {
            // SAFETY: the descriptor still is this file's. No later value of this type has its
            // number, or that one would have taken it away. So it is this value's own.
            unsafe { libc::syscall(libc::SYS_close, fd) };
        }
        self.fd.value.store(CLOSED, Relaxed);
        self.fd.give_back();
    }
}

/// Writes the path of a descriptor of this process.
fn descriptor_path(fd: RawFd, buffer: &mut [u8; 32]) -> &CStr {
    use std::io::Write as _;
    let mut rest = &mut buffer[..];
    // The buffer has room for the longest number, and its last byte stays 0.
    let _ = write!(rest, "/proc/self/fd/{fd}");
    CStr::from_bytes_until_nul(buffer).unwrap_or(c"")
}

/// Returns the effective user of this process.
pub(crate) fn user() -> u32 {
    // SAFETY: the call has no preconditions.
    unsafe { libc::geteuid() }
}

/// Returns random bits, or at least different ones for each call.
pub(crate) fn nonce() -> u64 {
    let mut bits = 0_u64;
    // SAFETY: the kernel writes at most 8 bytes to `bits`.
    let got = unsafe { libc::syscall(libc::SYS_getrandom, &raw mut bits, 8, libc::GRND_NONBLOCK) };
    if got == 8 {
        return bits;
    }
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes the time to `now`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    // SAFETY: the call has no preconditions.
    let process = unsafe { libc::getpid() } as u64;
    (now.tv_sec as u64) << 40 ^ (now.tv_nsec as u64) << 10 ^ process
}

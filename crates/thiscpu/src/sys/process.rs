//! Which process a number stood for, and whether that process is gone.
//!
//! Locks tell that more reliably; see [`super::lock_file`]. This is for processes whose lock a
//! program has closed.

use core::ffi::CStr;
use std::io::Write as _;

use super::errno;
use super::file::each_byte;

/// What identifies a process, and the program that it executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) pid: u64,
    /// When the process began, in ticks since the machine did.
    pub(crate) start: u64,
    /// The address of its first stack, which `exec` changes at random; 0 if that is not known.
    pub(crate) stack: u64,
    /// The number of its PID namespace; 0 if that is not known.
    pub(crate) namespace: u64,
}

/// What `/proc` says of a process.
#[derive(Default)]
struct Stat {
    /// Whether the main thread has ended.
    has_ended: bool,
    threads: u64,
    start: u64,
    stack: u64,
}

impl Identity {
    pub(crate) fn of_this_process() -> Identity {
        // SAFETY: the call has no preconditions.
        let pid = unsafe { libc::syscall(libc::SYS_getpid) } as u64;
        let stat = stat_of(pid);
        let namespace = if stat.is_some() { namespace(pid) } else { 0 };
        let Stat { start, stack, .. } = stat.unwrap_or_default();
        Identity { pid, start, stack, namespace }
    }

    /// Returns whether the process is gone; `None` if this process cannot compare.
    pub(crate) fn is_gone(&self) -> Option<bool> {
        let _errno = errno::save();
        // SAFETY: the call has no preconditions.
        let own = unsafe { libc::syscall(libc::SYS_getpid) } as u64;
        if self.namespace == 0 || self.namespace != namespace(own) {
            return None;
        }
        // SAFETY: signal 0 is none; the call takes numbers.
        let found = unsafe { libc::syscall(libc::SYS_kill, self.pid, 0) };
        if found != 0 && errno::last() == libc::ESRCH {
            return Some(true);
        }
        // A process that this one may not look at counts as alive.
        Some(stat_of(self.pid).is_some_and(|stat| {
            let differs = |known: u64, now: u64| known != 0 && now != 0 && known != now;
            // The main thread may end before others.
            (stat.has_ended && stat.threads <= 1)
                || stat.start != self.start
                || differs(self.stack, stat.stack)
        }))
    }
}

/// Returns the number of this process's PID namespace; 0 if `/proc` is another one's.
fn namespace(own: u64) -> u64 {
    let mut link = [0_u8; 24];
    // SAFETY: the path ends with a zero byte, and the buffer is valid for writes of its length.
    let length = unsafe {
        let (path, buffer, bytes) = (c"/proc/self".as_ptr(), link.as_mut_ptr(), link.len());
        libc::syscall(libc::SYS_readlinkat, libc::AT_FDCWD, path, buffer, bytes)
    };
    let mut text = [0_u8; 24];
    let _ = write!(&mut text[..], "{own}");
    if length <= 0 || link != text {
        return 0;
    }
    // SAFETY: all zeroes is a valid `stat`.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    let path = c"/proc/self/ns/pid".as_ptr();
    // SAFETY: the path ends with a zero byte, and `stat` is valid for writes.
    let result =
        unsafe { libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, path, &raw mut stat, 0) };
    if result == 0 { stat.st_ino } else { 0 }
}

/// Returns what `/proc` says of a process, if it says anything.
fn stat_of(pid: u64) -> Option<Stat> {
    let mut path = [0_u8; 40];
    let _ = write!(&mut path[..39], "/proc/{pid}/stat");
    let mut stat = Stat::default();
    // The name of the program may have spaces and parentheses. Fields behind it have none.
    let (mut field, mut value) = (0, 0_u64);
    each_byte(CStr::from_bytes_until_nul(&path).ok()?, |byte| match byte {
        b')' => (stat, field, value) = (Stat::default(), 2, 0),
        b' ' if field >= 2 => {
            match field {
                20 => stat.threads = value,
                22 => stat.start = value,
                28 => stat.stack = value,
                _ => {}
            }
            (field, value) = (field + 1, 0);
        }
        b'Z' | b'X' if field == 3 => stat.has_ended = true,
        b'0'..=b'9' => value = value.wrapping_mul(10).wrapping_add(u64::from(byte - b'0')),
        _ => {}
    })?;
    (field > 22).then_some(stat)
}

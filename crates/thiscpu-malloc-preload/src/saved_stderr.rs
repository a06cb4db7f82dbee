//! Where the table goes at exit: standard error, as it was when the program began.
//!
//! Many programs close it in a handler of `exit`, to see whether what they wrote has arrived. So a copy is kept; and
//! because some close every file there is, and open others under the same numbers, it is looked at whether the
//! file behind a number still is that one.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};

/// Above the numbers that programs have their own ideas about.
const LOWEST_COPY: i32 = 200;

// Relaxed, all of them: they are written before `main`, and read after the flag that says so.
static COPY: AtomicI32 = AtomicI32::new(-1);
static DEVICE: AtomicU64 = AtomicU64::new(0);
static INODE: AtomicU64 = AtomicU64::new(0);

/// Remembers what standard error is.
pub(crate) fn remember() {
    let Some((device, inode)) = identity(libc::STDERR_FILENO) else { return };
    DEVICE.store(device, Relaxed);
    INODE.store(inode, Relaxed);
    // SAFETY: fcntl takes plain numbers here.
    let copy = unsafe { libc::fcntl(libc::STDERR_FILENO, libc::F_DUPFD_CLOEXEC, LOWEST_COPY) };
    COPY.store(copy, Relaxed);
}

/// A number under which that file is still open.
pub(crate) fn find() -> Option<i32> {
    let known = (DEVICE.load(Relaxed), INODE.load(Relaxed));
    [libc::STDERR_FILENO, COPY.load(Relaxed)]
        .into_iter()
        .find(|&number| identity(number).is_some_and(|identity| identity == known))
}

/// What tells the file behind a number from all others.
fn identity(number: i32) -> Option<(u64, u64)> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: fstat fills in what `status` has room for, if it does not fail.
    unsafe {
        match libc::fstat(number, status.as_mut_ptr()) {
            0 => Some((status.assume_init_ref().st_dev, status.assume_init_ref().st_ino)),
            _ => None,
        }
    }
}

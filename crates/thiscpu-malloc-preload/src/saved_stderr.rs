//! The destination of the table at exit: standard error as it was when the program started.
//!
//! Many programs close it in an `exit` handler, to detect write errors. So a duplicate is kept.
//! Some programs close all descriptors, and open other files under the same numbers. So before a
//! descriptor is used, its file is compared with the original one.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};

/// The lowest number for the duplicate: above those that programs choose themselves.
const LOWEST_COPY: i32 = 200;

// Relaxed, for all of these: they are stored before the Release store to `KNOWS_STDERR`, and read
// after the Acquire load of it.
static COPY: AtomicI32 = AtomicI32::new(-1);
static DEVICE: AtomicU64 = AtomicU64::new(0);
static INODE: AtomicU64 = AtomicU64::new(0);

/// Remembers the file that standard error is, and duplicates the descriptor.
pub(crate) fn remember() {
    let Some((device, inode)) = identity(libc::STDERR_FILENO) else { return };
    DEVICE.store(device, Relaxed);
    INODE.store(inode, Relaxed);
    // SAFETY: F_DUPFD_CLOEXEC takes an integer.
    let copy = unsafe { libc::fcntl(libc::STDERR_FILENO, libc::F_DUPFD_CLOEXEC, LOWEST_COPY) };
    COPY.store(copy, Relaxed);
}

/// Returns a descriptor under which that file is still open.
pub(crate) fn find() -> Option<i32> {
    let known = (DEVICE.load(Relaxed), INODE.load(Relaxed));
    [libc::STDERR_FILENO, COPY.load(Relaxed)]
        .into_iter()
        .find(|&descriptor| identity(descriptor).is_some_and(|identity| identity == known))
}

/// Returns the device and inode of an open file, which identify it.
fn identity(descriptor: i32) -> Option<(u64, u64)> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `status` may be written to, and is initialized if fstat succeeds.
    unsafe {
        match libc::fstat(descriptor, status.as_mut_ptr()) {
            0 => Some((status.assume_init_ref().st_dev, status.assume_init_ref().st_ino)),
            _ => None,
        }
    }
}

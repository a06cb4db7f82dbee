//! Heap profiles: at exit, and by the functions of `thiscpu_malloc.h`.

use core::ffi::{CStr, c_char, c_int};
use core::ptr;

use thiscpu_malloc::export::try_write_profile;
use thiscpu_malloc::profile;

use crate::errno::keep_errno;

/// Writes the profile at the end of the process, if the setting `profile` names a file.
pub(crate) fn end() {
    keep_errno(|| {
        // Another thread may be writing it, whose file would stay incomplete. After a second the
        // process ends in any case: a handler may have interrupted this thread's write.
        let tenth = libc::timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        for _ in 0..10 {
            if try_write_profile() {
                break;
            }
            let no_rest = ptr::null_mut::<libc::timespec>();
            // The C library's function is a cancellation point.
            //
            // SAFETY: the time is valid, and null means that the rest is not returned.
            unsafe { libc::syscall(libc::SYS_nanosleep, &raw const tenth, no_rest) };
        }
    });
}

/// Begins to sample one block in each `interval` bytes, or in 512 KiB if it is 0.
#[unsafe(no_mangle)]
extern "C" fn thiscpu_malloc_profile_start(interval: u64) {
    keep_errno(|| match interval {
        0 => profile::start(profile::DEFAULT_INTERVAL),
        interval => profile::start(interval),
    });
}

/// Ends the sampling.
#[unsafe(no_mangle)]
extern "C" fn thiscpu_malloc_profile_stop() {
    profile::stop();
}

/// Writes the profile to a file; returns 0, or the number of an error.
#[unsafe(no_mangle)]
unsafe extern "C" fn thiscpu_malloc_profile_write(path: *const c_char) -> c_int {
    if path.is_null() {
        return libc::EINVAL;
    }
    // SAFETY: the caller guarantees a C string. getpid has no preconditions.
    let (path, process) = unsafe { (CStr::from_ptr(path), libc::getpid()) };
    match profile::write_file(path, process) {
        Ok(true) => 0,
        Ok(false) => libc::EBUSY,
        Err(error) => error,
    }
}

//! Setting `errno`, out of line of calls that succeed.

use core::ffi::{c_int, c_void};
use core::ptr;

/// Sets `ENOMEM` and returns null: memory is exhausted, or the size can never be allocated.
#[cold]
#[inline(never)]
pub(crate) extern "C" fn set_enomem() -> *mut c_void {
    set(libc::ENOMEM)
}

/// Sets `EINVAL` and returns null: an argument is invalid.
#[cold]
#[inline(never)]
pub(crate) extern "C" fn set_einval() -> *mut c_void {
    set(libc::EINVAL)
}

fn set(number: c_int) -> *mut c_void {
    // SAFETY: the address is that of this thread's `errno`.
    unsafe { *libc::__errno_location() = number };
    ptr::null_mut()
}

/// Calls `work`, and then restores `errno`.
pub(crate) fn keep_errno<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: the address is that of this thread's `errno`, and stays so during the call.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let result = work();
        *errno = before;
        result
    }
}

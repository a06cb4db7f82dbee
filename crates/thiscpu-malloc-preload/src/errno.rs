//! What the family says with `errno`, out of the way of calls that succeed.

use core::ffi::{c_int, c_void};
use core::ptr;

/// There is no memory, or there can never be that much.
#[cold]
#[inline(never)]
pub(crate) extern "C" fn set_enomem() -> *mut c_void {
    set(libc::ENOMEM)
}

/// What was asked for makes no sense.
#[cold]
#[inline(never)]
pub(crate) extern "C" fn set_einval() -> *mut c_void {
    set(libc::EINVAL)
}

fn set(number: c_int) -> *mut c_void {
    // SAFETY: the address is that of this thread's errno.
    unsafe { *libc::__errno_location() = number };
    ptr::null_mut()
}

/// Calls `work`, after which `errno` is what it was before.
pub(crate) fn keep_errno<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: the address is that of this thread's errno, during the call too.
    unsafe {
        let place = libc::__errno_location();
        let before = *place;
        let result = work();
        *place = before;
        result
    }
}

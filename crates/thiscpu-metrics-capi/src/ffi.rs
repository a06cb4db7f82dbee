//! The boundary that every function passes: panics become statuses, and arguments are checked.

use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use thiscpu::__internal::capi::PanicReason;

use crate::last_error::note;
use crate::status::Status;

/// Runs the body of a function and returns its status. A panic becomes a status.
pub(crate) fn catch(body: impl FnOnce() -> Result<(), Status>) -> Status {
    // `AssertUnwindSafe` is right because a panic leaves registries and handles consistent.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => Status::Ok,
        Ok(Err(status)) => status,
        // The panic hook has noted the sentence.
        Err(_) => match PanicReason::take() {
            PanicReason::FenceDenied => Status::FenceDenied,
            PanicReason::NoMemory | PanicReason::Other => Status::Internal,
        },
    }
}

fn null() -> Status {
    note("null pointer: a handle or another required pointer is NULL");
    Status::NullPointer
}

/// Returns a reference to the value of a handle, or to an array's first element.
///
/// # Safety
///
/// `pointer` is null, or points to a `T` that outlives `'a` and is not mutated during it, except
/// through interior mutability.
pub(crate) unsafe fn deref<'a, T>(pointer: *const T) -> Result<&'a T, Status> {
    // SAFETY: the caller guarantees it.
    unsafe { pointer.as_ref() }.ok_or_else(null)
}

/// Creates a handle of what `new` returns, and stores it in `*out`.
///
/// # Safety
///
/// `out` is null or valid for writes.
pub(crate) unsafe fn create<T>(
    out: *mut *mut T,
    new: impl FnOnce() -> Result<T, Status>,
) -> Status {
    catch(|| {
        if out.is_null() {
            return Err(null());
        }
        let handle = Box::into_raw(Box::new(new()?));
        // SAFETY: the caller guarantees that `out` is valid for writes, as it is not null.
        unsafe { out.write(handle) };
        Ok(())
    })
}

/// Stores a value in `*out`, if that is not null.
///
/// # Safety
///
/// `out` is null or valid for writes.
pub(crate) unsafe fn store<T>(out: *mut T, value: T) {
    if !out.is_null() {
        // SAFETY: the caller guarantees that `out` is valid for writes, as it is not null.
        unsafe { out.write(value) };
    }
}

/// Takes a handle back, to use or drop its value. Null is `None`.
///
/// # Safety
///
/// `handle` is null or from [`create`], and nobody uses it any more.
pub(crate) unsafe fn take<T>(handle: *mut T) -> Option<T> {
    // SAFETY: `create` made the handle by `Box::into_raw`, and the caller owns it.
    (!handle.is_null()).then(|| *unsafe { Box::from_raw(handle) })
}

/// Returns a C string of the caller.
///
/// # Safety
///
/// `text` is null, or a C string that outlives `'a`.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Status> {
    if text.is_null() {
        return Err(null());
    }
    // SAFETY: the caller guarantees that it is a C string.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| {
        note("invalid text: it is not UTF-8; encode names, help texts and labels in UTF-8");
        Status::Rejected
    })
}

/// Returns a C string of the caller, which is empty if it is null.
///
/// # Safety
///
/// As for [`text`].
pub(crate) unsafe fn text_or_empty<'a>(string: *const c_char) -> Result<&'a str, Status> {
    // SAFETY: the caller guarantees it.
    if string.is_null() { Ok("") } else { unsafe { text(string) } }
}

/// Stores `text` and a nul in a buffer, or the part that fits.
///
/// Stores the length of the whole text in `*length`.
///
/// # Safety
///
/// `buffer` has room for `bytes` bytes, and `length` is null or valid for writes.
pub(crate) unsafe fn copy_text(
    text: &str,
    buffer: *mut c_char,
    bytes: usize,
    length: *mut usize,
) -> Result<(), Status> {
    if bytes > 0 {
        // SAFETY: the caller guarantees room for `bytes` bytes.
        unsafe { deref(buffer.cast::<u8>())? };
        let part = text.len().min(bytes - 1);
        // SAFETY: the buffer has room for the part and a nul, and is memory of the caller.
        unsafe {
            buffer.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), part);
            buffer.add(part).write(0);
        }
    }
    // SAFETY: the caller guarantees it.
    unsafe { store(length, text.len()) };
    Ok(())
}

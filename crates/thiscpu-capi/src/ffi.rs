//! The boundary that every function passes: panics become statuses, and pointers are checked.

use std::alloc::Layout;
use std::ffi::{CStr, c_char};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use thiscpu::__internal::capi::{PanicReason, handles};

use crate::inline_abi;
use crate::last_error;
use crate::status::Status;

/// Runs the body of a function and returns its status.
///
/// A panic becomes a status; the panic hook has noted its message by then, and prints nothing.
pub(crate) fn catch(body: impl FnOnce() -> Result<(), Status>) -> Status {
    // All calls of C pass here, so the reason that a thread notes is that of the panic caught.
    // `AssertUnwindSafe` is right because the structures are `RefUnwindSafe`: a panic leaves them
    // consistent.
    let status = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return Status::Ok,
        Ok(Err(status)) => status,
        Err(_) => PanicReason::take().into(),
    };
    last_error::record(status);
    status
}

/// Returns a reference to the value that `pointer` points to.
///
/// # Safety
///
/// `pointer` is null, misaligned, or points to a `T` that outlives `'a` and is not mutated during
/// it, except through interior mutability.
pub(crate) unsafe fn deref<'a, T>(pointer: *const T) -> Result<&'a T, Status> {
    if !pointer.is_null() && !pointer.is_aligned() {
        return Err(Status::Misaligned);
    }
    // SAFETY: the pointer is aligned. The caller guarantees that it is null or points to a `T`
    // that lives for `'a`.
    unsafe { pointer.as_ref() }.ok_or(Status::NullPointer)
}

/// Returns the string that `pointer` points to.
///
/// # Safety
///
/// `pointer` is null, or points to a string that lives for `'a`.
pub(crate) unsafe fn text<'a>(pointer: *const c_char) -> Result<&'a CStr, Status> {
    if pointer.is_null() {
        return Err(Status::NullPointer);
    }
    // SAFETY: the caller guarantees that a pointer that is not null points to a string.
    Ok(unsafe { CStr::from_ptr(pointer) })
}

/// Returns the name of an object in a segment.
///
/// # Safety
///
/// As [`text`].
pub(crate) unsafe fn name<'a>(pointer: *const c_char) -> Result<&'a str, Status> {
    // SAFETY: the caller guarantees it.
    unsafe { text(pointer) }?.to_str().map_err(|_| Status::InvalidName)
}

/// A pointer to memory that a function writes its result to. The memory may be uninitialized.
pub(crate) struct OutParam<'a, T> {
    pointer: *mut T,
    lifetime: PhantomData<&'a mut T>,
}

impl<T> OutParam<'_, T> {
    /// Checks a pointer that must not be null.
    ///
    /// # Safety
    ///
    /// `pointer` is null, misaligned, or valid for writes of a `T` as long as the result lives.
    pub(crate) unsafe fn new(pointer: *mut T) -> Result<Self, Status> {
        match () {
            () if pointer.is_null() => Err(Status::NullPointer),
            () if !pointer.is_aligned() => Err(Status::Misaligned),
            () => Ok(OutParam { pointer, lifetime: PhantomData }),
        }
    }

    /// Checks a pointer that may be null, in which case the result is `None`.
    ///
    /// # Safety
    ///
    /// `pointer` is null, misaligned, or valid for writes of a `T` as long as the result lives.
    pub(crate) unsafe fn optional(pointer: *mut T) -> Result<Option<Self>, Status> {
        if pointer.is_null() {
            return Ok(None);
        }
        // SAFETY: the caller guarantees that `pointer` is misaligned or valid for writes.
        unsafe { Self::new(pointer) }.map(Some)
    }

    pub(crate) fn write(self, value: T) {
        // SAFETY: the caller of `new` guaranteed that an aligned pointer is valid for writes, and
        // `new` has checked its alignment.
        unsafe { self.pointer.write(value) };
    }
}

/// Writes what `get` returns for the value of a handle to `out`.
///
/// # Safety
///
/// The handle is null, misaligned or live; `out` is null, misaligned or valid for writes.
pub(crate) unsafe fn write<T, R>(
    handle: *const T,
    out: *mut R,
    get: impl FnOnce(&T) -> Result<R, Status>,
) -> Status {
    catch(|| {
        // SAFETY: the caller guarantees that the handle is null, misaligned or live, and that `out`
        // is null, misaligned or valid for writes.
        let (value, out) = unsafe { (deref(handle)?, OutParam::new(out)?) };
        out.write(get(value)?);
        Ok(())
    })
}

/// Creates a handle and writes it to `out`.
///
/// Calls `new` only if `out` is valid and there is memory for the handle.
///
/// # Safety
///
/// `out` is null, misaligned, or valid for writes of a pointer.
pub(crate) unsafe fn create<T>(
    out: *mut *mut T,
    new: impl FnOnce() -> Result<T, Status>,
) -> Status {
    // SAFETY: the caller guarantees that `out` is null, misaligned or valid for writes.
    unsafe { create_at(out, |_| new()) }
}

/// Creates a handle as [`create`] does. `new` gets the address at which its value will be.
///
/// # Safety
///
/// `out` is null, misaligned, or valid for writes of a pointer.
pub(crate) unsafe fn create_at<T>(
    out: *mut *mut T,
    new: impl FnOnce(*mut T) -> Result<T, Status>,
) -> Status {
    catch(|| {
        // SAFETY: the caller guarantees that `out` is null, misaligned or valid for writes.
        let out = unsafe { OutParam::new(out) }?;
        let handle = UninitHandle::<T>::new()?;
        let value = new(handle.0.as_ptr());
        // Before the error is returned: a failed creation may have been the first use, too.
        inline_abi::publish();
        out.write(handle.init(value?));
        Ok(())
    })
}

/// Memory for a handle, without a value.
pub(crate) struct UninitHandle<T>(NonNull<T>);

impl<T> UninitHandle<T> {
    pub(crate) fn new() -> Result<UninitHandle<T>, Status> {
        let memory = handles::allocate(Layout::new::<T>()).ok_or(Status::NoMemory)?;
        Ok(UninitHandle(memory.cast()))
    }

    pub(crate) fn init(self, value: T) -> *mut T {
        let handle = ManuallyDrop::new(self).0;
        // SAFETY: the memory has the layout of a `T`, and only this call knows it.
        unsafe { handle.write(value) };
        handle.as_ptr()
    }
}

impl<T> Drop for UninitHandle<T> {
    fn drop(&mut self) {
        // SAFETY: the memory is from `handles::allocate`, and this owns it alone.
        unsafe { handles::free(self.0.cast()) };
    }
}

/// Drops the value of a handle, and frees its memory.
///
/// # Safety
///
/// The handle is from [`UninitHandle::init`], and no thread uses it any more.
pub(crate) unsafe fn free<T>(handle: NonNull<T>) {
    // Frees the memory even if the value's drop panics.
    let memory = UninitHandle(handle);
    // SAFETY: the handle has a value, which the caller does not use any more.
    unsafe { memory.0.drop_in_place() };
}

/// Destroys a handle. Null is allowed and does nothing.
///
/// # Safety
///
/// `handle` is null, misaligned, or a handle from [`create`] that no thread uses during or after
/// this call.
pub(crate) unsafe fn destroy<T>(handle: *mut T) -> Status {
    catch(|| {
        if !handle.is_aligned() {
            return Err(Status::Misaligned);
        }
        if let Some(handle) = NonNull::new(handle) {
            // SAFETY: `create` made the handle, and the caller guarantees that no thread uses it
            // any more.
            unsafe { free(handle) };
        }
        Ok(())
    })
}

/// Copies the first `capacity` values to `out`, and returns how many values there are in all.
///
/// # Safety
///
/// `out` is misaligned, or valid for writes of `capacity` values. It may be null if `capacity` is
/// 0; otherwise null is an error.
pub(crate) unsafe fn copy_out<T>(
    out: *mut T,
    capacity: usize,
    values: impl Iterator<Item = T>,
) -> Result<usize, Status> {
    if capacity > 0 {
        // SAFETY: the caller guarantees that `out` is null, misaligned or valid for writes.
        unsafe { OutParam::new(out) }?;
    }
    let mut count = 0;
    for value in values {
        if count < capacity {
            // SAFETY: `out` is aligned and not null, as checked above, and the caller guarantees
            // room for `capacity` values.
            unsafe { out.add(count).write(value) };
        }
        count += 1;
    }
    Ok(count)
}

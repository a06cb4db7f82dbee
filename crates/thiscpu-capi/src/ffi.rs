//! The boundary that every function passes: panics become statuses, and pointers are checked.

use std::alloc::{Layout, alloc};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

use thiscpu::__internal::capi::PanicReason;

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
    catch(|| {
        // SAFETY: the caller guarantees that `out` is null, misaligned or valid for writes.
        let out = unsafe { OutParam::new(out) }?;
        let handle = UninitHandle::<T>::new()?;
        let value = new();
        // Before the error is returned: a failed creation may have been the first use, too.
        inline_abi::publish();
        out.write(handle.init(value?));
        Ok(())
    })
}

/// Memory for a handle. `Box::new` would end the process where there is none.
pub(crate) struct UninitHandle<T>(Box<MaybeUninit<T>>);

impl<T> UninitHandle<T> {
    pub(crate) fn new() -> Result<UninitHandle<T>, Status> {
        const { assert!(size_of::<T>() > 0) };
        // SAFETY: the layout's size is not 0, as just asserted.
        let memory = unsafe { alloc(Layout::new::<T>()) }.cast::<MaybeUninit<T>>();
        if memory.is_null() {
            return Err(Status::NoMemory);
        }
        // SAFETY: the memory is from the global allocator, with the layout of a `T`, and only
        // this box owns it. `MaybeUninit` needs no initialization.
        Ok(UninitHandle(unsafe { Box::from_raw(memory) }))
    }

    pub(crate) fn init(self, value: T) -> *mut T {
        Box::into_raw(Box::write(self.0, value))
    }
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
        if !handle.is_null() {
            // SAFETY: `create` made the handle by `Box::into_raw`, and the caller guarantees that
            // no thread uses it any more.
            drop(unsafe { Box::from_raw(handle) });
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

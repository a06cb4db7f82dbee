//! What every function does at the border: no panic crosses it, and no pointer is used that cannot be one.

use std::alloc::{Layout, alloc};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

use thiscpu::inside::foreign::PanicReason;

use crate::inline_abi;
use crate::status::Status;

/// Runs what a function does. A panic says on standard error what is wrong, and outside it is a status.
pub(crate) fn call(body: impl FnOnce() -> Result<(), Status>) -> Status {
    // What a panic leaves behind is whole: the structures themselves say so, by being `RefUnwindSafe`.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => Status::Ok,
        Ok(Err(status)) => status,
        Err(payload) => PanicReason::of(&*payload).into(),
    }
}

/// What a pointer leads to.
///
/// # Safety
///
/// If it is not null it is a live value of that type, and nobody changes it but through itself.
pub(crate) unsafe fn there<'a, T>(pointer: *const T) -> Result<&'a T, Status> {
    if !pointer.is_null() && !pointer.is_aligned() {
        return Err(Status::Misaligned);
    }
    // SAFETY: the caller's promise; aligned.
    unsafe { pointer.as_ref() }.ok_or(Status::NullPointer)
}

/// Where a function is to put what it has found.
///
/// # Safety
///
/// If it is not null it is valid for writes of its type.
pub(crate) unsafe fn place<'a, T>(pointer: *mut T) -> Result<Place<'a, T>, Status> {
    match () {
        () if pointer.is_null() => Err(Status::NullPointer),
        () if !pointer.is_aligned() => Err(Status::Misaligned),
        () => Ok(Place { pointer, lives: std::marker::PhantomData }),
    }
}

/// A place that may hold nothing yet.
pub(crate) struct Place<'a, T> {
    pointer: *mut T,
    lives: std::marker::PhantomData<&'a mut T>,
}

impl<T> Place<'_, T> {
    pub(crate) fn put(self, value: T) {
        // SAFETY: `place` was promised that it is valid for writes, and looked at its alignment.
        unsafe { self.pointer.write(value) };
    }
}

/// Makes a handle, and puts it into its place; nothing is made if there is none, or no memory.
///
/// # Safety
///
/// As for [`place`].
pub(crate) unsafe fn make<T>(out: *mut *mut T, new: impl FnOnce() -> Result<T, Status>) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let place = unsafe { place(out) }?;
        let room = Room::<T>::new()?;
        let made = new();
        // Also if nothing was made: that may have been the first use.
        inline_abi::publish();
        place.put(room.fill(made?));
        Ok(())
    })
}

/// Memory for a handle. A box of the standard library's would end the process where there is none.
struct Room<T>(Box<MaybeUninit<T>>);

impl<T> Room<T> {
    fn new() -> Result<Room<T>, Status> {
        const { assert!(size_of::<T>() > 0) };
        // SAFETY: the layout has a size.
        let memory = unsafe { alloc(Layout::new::<T>()) }.cast::<MaybeUninit<T>>();
        if memory.is_null() {
            return Err(Status::NoMemory);
        }
        // SAFETY: just allocated, as a box does it, with the layout of a value that may be uninitialised.
        Ok(Room(unsafe { Box::from_raw(memory) }))
    }

    fn fill(self, value: T) -> *mut T {
        Box::into_raw(Box::write(self.0, value))
    }
}

/// Ends a handle; null is none.
///
/// # Safety
///
/// It is one of [`make`]'s, and nobody uses it any more.
pub(crate) unsafe fn end<T>(handle: *mut T) -> Status {
    call(|| {
        if !handle.is_aligned() {
            return Err(Status::Misaligned);
        }
        if !handle.is_null() {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(handle) });
        }
        Ok(())
    })
}

/// Copies as many values as there is room for. How many there are.
///
/// # Safety
///
/// As for [`place`]; there is room for `room` values at `out`, which may be null if that is 0.
pub(crate) unsafe fn copy_out<T>(
    out: *mut T,
    room: usize,
    values: impl Iterator<Item = T>,
) -> Result<usize, Status> {
    if room > 0 {
        // SAFETY: the caller's promise.
        unsafe { place(out) }?;
    }
    let mut count = 0;
    for value in values {
        if count < room {
            // SAFETY: there is room for it, and the place is aligned.
            unsafe { out.add(count).write(value) };
        }
        count += 1;
    }
    Ok(count)
}

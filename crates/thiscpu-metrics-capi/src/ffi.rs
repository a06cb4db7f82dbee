//! The boundary that every function passes: panics become statuses, and pointers are checked.

use std::alloc::{self, Layout};
use std::ffi::{CStr, c_char};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use thiscpu::__internal::capi::PanicReason;

use crate::last_error::note_fixed;
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
            PanicReason::NoMemory => Status::NoMemory,
            PanicReason::Other => Status::Internal,
        },
    }
}

/// Returns an error if a pointer is null or misaligned.
fn check<T>(pointer: *const T) -> Result<(), Status> {
    if pointer.is_null() {
        note_fixed(c"null pointer: a handle or another required pointer is NULL; pass a valid one");
        return Err(Status::NullPointer);
    }
    if !pointer.is_aligned() {
        note_fixed(c"misaligned pointer: a pointer is not aligned for its type; pass a valid one");
        return Err(Status::Misaligned);
    }
    Ok(())
}

/// Returns a reference to the value that `pointer` points to.
///
/// # Safety
///
/// `pointer` is null, misaligned, or points to a `T` that outlives `'a` and is not mutated during
/// it, except through interior mutability.
pub(crate) unsafe fn deref<'a, T>(pointer: *const T) -> Result<&'a T, Status> {
    check(pointer)?;
    // SAFETY: `check` has found that the pointer is not null and not misaligned. So the caller
    // guarantees that it points to a `T` that outlives `'a` and is not mutated during it.
    Ok(unsafe { &*pointer })
}

/// Returns an array of `count` values, which may be null if `count` is 0.
///
/// # Safety
///
/// If `count` is not 0, `pointer` is null, misaligned, or points to `count` values that outlive
/// `'a` and are not mutated during it.
pub(crate) unsafe fn array<'a, T>(pointer: *const T, count: usize) -> Result<&'a [T], Status> {
    if count == 0 {
        return Ok(&[]);
    }
    check(pointer)?;
    // SAFETY: `check` has found that the pointer is not null and not misaligned. So the caller
    // guarantees that it points to `count` values that outlive `'a` and are not mutated during it.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
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
        check(pointer)?;
        Ok(OutParam { pointer, lifetime: PhantomData })
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
        // SAFETY: `new` has checked that the pointer is not null and not misaligned. So the caller
        // of `new` guaranteed that it is valid for writes.
        unsafe { self.pointer.write(value) };
    }
}

/// Memory for a handle, without a value.
struct UninitHandle<T>(NonNull<T>);

impl<T> UninitHandle<T> {
    const LAYOUT: Layout = {
        assert!(size_of::<T>() > 0);
        Layout::new::<T>()
    };

    fn new() -> Result<UninitHandle<T>, Status> {
        // SAFETY: the layout has at least a byte.
        let memory = unsafe { alloc::alloc(Self::LAYOUT) };
        NonNull::new(memory.cast()).map(UninitHandle).ok_or_else(|| {
            note_fixed(c"no memory: malloc has none for a handle; raise the limit on memory");
            Status::NoMemory
        })
    }

    fn init(self, value: T) -> *mut T {
        let handle = ManuallyDrop::new(self).0;
        // SAFETY: the memory has the layout of a `T`, and only this call knows it.
        unsafe { handle.write(value) };
        handle.as_ptr()
    }
}

impl<T> Drop for UninitHandle<T> {
    fn drop(&mut self) {
        // SAFETY: the memory is from `alloc` in `new`, with this layout, and this owns it alone.
        unsafe { alloc::dealloc(self.0.as_ptr().cast(), Self::LAYOUT) };
    }
}

/// Creates a handle of what `new` returns, and stores it in `*out`.
///
/// Calls `new` only if `out` is valid and there is memory for the handle.
///
/// # Safety
///
/// `out` is null, misaligned, or valid for writes.
pub(crate) unsafe fn create<T>(
    out: *mut *mut T,
    new: impl FnOnce() -> Result<T, Status>,
) -> Status {
    catch(|| {
        // SAFETY: the caller guarantees that `out` is null, misaligned or valid for writes.
        let out = unsafe { OutParam::new(out) }?;
        let handle = UninitHandle::new()?;
        out.write(handle.init(new()?));
        Ok(())
    })
}

/// Takes a handle back, to use or drop its value. Null is `None`.
///
/// # Safety
///
/// `handle` is null, misaligned, or from [`create`], and no thread uses it any more.
pub(crate) unsafe fn take<T>(handle: *mut T) -> Result<Option<T>, Status> {
    let Some(memory) = NonNull::new(handle) else { return Ok(None) };
    check(handle)?;
    let memory = UninitHandle(memory);
    // SAFETY: `create` has written a value to the memory. The caller gives the handle up, so the
    // value is moved out once; the memory is then freed without it.
    Ok(Some(unsafe { memory.0.read() }))
}

/// Destroys a handle. Null is allowed and does nothing.
///
/// # Safety
///
/// As for [`take`].
pub(crate) unsafe fn destroy<T>(handle: *mut T) -> Status {
    // SAFETY: the caller guarantees what `take` requires.
    catch(|| unsafe { take(handle) }.map(drop))
}

/// Returns a C string of the caller.
///
/// # Safety
///
/// `text` is null, or a C string that outlives `'a`.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Status> {
    check(text)?;
    // SAFETY: the pointer is not null, so the caller guarantees that it is a C string that outlives
    // `'a`.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| {
        note_fixed(c"invalid text: it is not UTF-8; encode names, help texts and labels in UTF-8");
        Status::Rejected
    })
}

/// Returns a C string of the caller, which is empty if it is null.
///
/// # Safety
///
/// As for [`text`].
pub(crate) unsafe fn text_or_empty<'a>(string: *const c_char) -> Result<&'a str, Status> {
    if string.is_null() {
        return Ok("");
    }
    // SAFETY: the caller guarantees that a pointer that is not null is a C string that outlives
    // `'a`, as `text` requires.
    unsafe { text(string) }
}

/// Returns C strings of the caller.
///
/// # Safety
///
/// If `count` is not 0, `texts` is null, misaligned, or points to `count` pointers. Each of them
/// is null or a C string. They outlive `'a`.
pub(crate) unsafe fn texts<'a>(
    texts: *const *const c_char,
    count: usize,
) -> Result<Vec<&'a str>, Status> {
    // SAFETY: the caller guarantees that `texts` is null, misaligned, or an array of `count`.
    let texts = unsafe { array(texts, count) }?;
    // SAFETY: the caller guarantees that each is null or a C string that outlives `'a`.
    texts.iter().map(|&one| unsafe { text(one) }).collect()
}

/// A buffer of the caller for a text, and where the length of the whole text is stored.
pub(crate) struct TextBuffer<'a> {
    buffer: *mut u8,
    bytes: usize,
    length: Option<OutParam<'a, usize>>,
}

impl TextBuffer<'_> {
    /// Checks both pointers. `buffer` may be null if `bytes` is 0, and `length` in any case.
    ///
    /// # Safety
    ///
    /// `buffer` is null, or has room for `bytes` bytes. `length` is null, misaligned, or valid for
    /// writes. Both stay so as long as the result lives.
    pub(crate) unsafe fn new(
        buffer: *mut c_char,
        bytes: usize,
        length: *mut usize,
    ) -> Result<Self, Status> {
        if bytes > 0 {
            check(buffer)?;
        }
        // SAFETY: the caller guarantees that `length` is null, misaligned or valid for writes.
        let length = unsafe { OutParam::optional(length) }?;
        Ok(TextBuffer { buffer: buffer.cast(), bytes, length })
    }

    /// Stores `text` and a nul in the buffer, or the part that fits, and the length of `text`.
    pub(crate) fn write(self, text: &str) {
        if let Some(room) = self.bytes.checked_sub(1) {
            let part = text.len().min(room);
            // SAFETY: `bytes` is not 0, so `new` has checked that the buffer is not null, and its
            // caller guaranteed room for `bytes` bytes: for the part and a nul. The buffer is the
            // caller's, and `text` is a string of this library, so they do not overlap.
            unsafe {
                self.buffer.copy_from_nonoverlapping(text.as_ptr(), part);
                self.buffer.add(part).write(0);
            }
        }
        if let Some(length) = self.length {
            length.write(text.len());
        }
    }
}

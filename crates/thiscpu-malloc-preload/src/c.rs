//! malloc, calloc, realloc and free, with the rules of POSIX, and glibc's where POSIX leaves a choice.
//!
//! A block of no bytes has an address of its own. `realloc` to no bytes frees and returns null.
//!
//! malloc and free, and operator new and delete, are the allocator's fast path with jumps out of it. What they jump to is a
//! function that may unwind, or it would keep a frame to stop panics; `own` sees to it that no panic
//! gets that far.
//!
//! Nothing in this library calls a function by a name that it exports, but where whoever has replaced that is to be asked: see `replaced`.

use core::ffi::c_void;
use core::ptr::NonNull;

use thiscpu_malloc::{define_free, define_malloc, export};

use crate::errno::set_enomem;
use crate::interpose::resolve;
use crate::rust_runtime;

/// A block as C knows it; null, with `errno` set, if there is none.
#[inline(always)]
pub(crate) fn or_enomem(block: Option<NonNull<u8>>) -> *mut c_void {
    match block {
        Some(block) => block.as_ptr().cast(),
        None => set_enomem(),
    }
}

/// A block as Rust knows it.
#[inline(always)]
pub(crate) fn block(pointer: *mut c_void) -> Option<NonNull<u8>> {
    NonNull::new(pointer.cast())
}

define_malloc!(
    #[unsafe(no_mangle)]
    fn malloc() -> *mut c_void, in ".text.malloc", gated: malloc_gated
);

#[inline(never)]
pub(crate) extern "C-unwind" fn malloc_gated(size: usize) -> *mut c_void {
    export::alloc_gated(size, |size, cell| malloc_cold(size, cell))
}

#[cold]
#[inline(never)]
extern "C-unwind" fn malloc_cold(size: usize, cell: usize) -> *mut c_void {
    rust_runtime::abort_on_panic();
    or_enomem(export::alloc_cold(size, cell))
}

define_free!(
    #[unsafe(no_mangle)]
    fn free(*mut c_void), in ".text.free"
);

#[unsafe(no_mangle)]
extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    calloc_impl(count, size)
}

/// As `calloc`, for whoever has to get this library's.
#[inline(always)]
pub(crate) fn calloc_impl(count: usize, size: usize) -> *mut c_void {
    or_enomem(count.checked_mul(size).and_then(thiscpu_malloc::allocate_zeroed))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(pointer: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { realloc_impl(pointer, size) }
}

/// As `realloc`, for whoever has to get this library's.
///
/// # Safety
///
/// As for `realloc`.
pub(crate) unsafe fn realloc_impl(pointer: *mut c_void, size: usize) -> *mut c_void {
    let Some(block) = block(pointer) else {
        return or_enomem(thiscpu_malloc::allocate(size));
    };
    // SAFETY: the caller's promise.
    unsafe {
        if size == 0 {
            thiscpu_malloc::free(block);
            return core::ptr::null_mut();
        }
        or_enomem(thiscpu_malloc::resize(block, size))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn reallocarray(pointer: *mut c_void, count: usize, size: usize) -> *mut c_void {
    type Realloc = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
    let function = resolve!("realloc" as Realloc);
    match count.checked_mul(size) {
        // SAFETY: the caller's promise.
        Some(size) => unsafe { function(pointer, size) },
        None => set_enomem(),
    }
}

type Free = unsafe extern "C-unwind" fn(*mut c_void);

/// C23's free, for who knows the size; it is not looked at.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn free_sized(pointer: *mut c_void, _: usize) {
    let function = resolve!("free" as Free);
    // SAFETY: the caller's promise.
    unsafe { function(pointer) };
}

/// C23's free, for who knows size and alignment; they are not looked at.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn free_aligned_sized(pointer: *mut c_void, _: usize, _: usize) {
    let function = resolve!("free" as Free);
    // SAFETY: the caller's promise.
    unsafe { function(pointer) };
}

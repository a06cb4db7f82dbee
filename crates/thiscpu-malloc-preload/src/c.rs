//! malloc, calloc, realloc and free, by the rules of POSIX, and of glibc where POSIX allows
//! several.
//!
//! A block of 0 bytes has a unique address. `realloc` to 0 bytes frees the block and returns null.
//!
//! malloc and free, and operator new and delete, are the allocator's fast path, which leaves by
//! jumps. The functions that they jump to may unwind by their type, or they would need a frame to
//! stop panics. `rust_runtime` ensures that no panic gets that far.
//!
//! Nothing in this library calls a function by a name that it exports, except where a program's
//! replacement must be called: see `interpose`.

use core::ffi::c_void;
use core::ptr::NonNull;

use thiscpu_malloc::{define_free, define_malloc, export};

use crate::errno::set_enomem;
use crate::interpose::resolve;
use crate::rust_runtime;

/// Returns a block as C's pointer. `None` becomes null, with `ENOMEM` in `errno`.
#[inline(always)]
pub(crate) fn or_enomem(block: Option<NonNull<u8>>) -> *mut c_void {
    match block {
        Some(block) => block.as_ptr().cast(),
        None => set_enomem(),
    }
}

/// Returns C's pointer as a block. Null becomes `None`.
#[inline(always)]
pub(crate) fn block(pointer: *mut c_void) -> Option<NonNull<u8>> {
    NonNull::new(pointer.cast())
}

define_malloc!(
    #[unsafe(no_mangle)]
    fn malloc() -> *mut c_void, in ".text.malloc", gated: malloc_gated
);

#[inline(never)]
pub(crate) extern "C-unwind" fn malloc_gated(size: usize, is_counted: bool) -> *mut c_void {
    export::alloc_gated(size, is_counted, |size, cell| malloc_cold(size, cell))
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

/// Allocates like `calloc`, for callers that must not call a program's replacement of it.
#[inline(always)]
pub(crate) fn calloc_impl(count: usize, size: usize) -> *mut c_void {
    or_enomem(count.checked_mul(size).and_then(thiscpu_malloc::allocate_zeroed))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(pointer: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the caller guarantees that the pointer is null or an allocated block, and that the
    // old pointer is not used if this succeeds.
    unsafe { realloc_impl(pointer, size) }
}

/// Resizes like `realloc`, for callers that must not call a program's replacement of it.
///
/// # Safety
///
/// The pointer is null or an allocated block. If the call succeeds, the old pointer is not used any
/// more.
pub(crate) unsafe fn realloc_impl(pointer: *mut c_void, size: usize) -> *mut c_void {
    let Some(block) = block(pointer) else {
        return or_enomem(thiscpu_malloc::allocate(size));
    };
    // SAFETY: the caller guarantees that the block is allocated, and not used after success.
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
        // SAFETY: the caller guarantees what realloc requires.
        Some(size) => unsafe { function(pointer, size) },
        None => set_enomem(),
    }
}

type Free = unsafe extern "C-unwind" fn(*mut c_void);

/// Frees a block like C23's `free_sized`. The size is ignored.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn free_sized(pointer: *mut c_void, _: usize) {
    let function = resolve!("free" as Free);
    // SAFETY: the caller guarantees what free requires.
    unsafe { function(pointer) };
}

/// Frees a block like C23's `free_aligned_sized`. Alignment and size are ignored.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn free_aligned_sized(pointer: *mut c_void, _: usize, _: usize) {
    let function = resolve!("free" as Free);
    // SAFETY: the caller guarantees what free requires.
    unsafe { function(pointer) };
}

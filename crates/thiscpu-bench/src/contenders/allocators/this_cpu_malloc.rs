//! `thiscpu-malloc`: this project's `malloc`, called as programs call one.

use std::ptr::{self, NonNull};

use super::Allocator;

/// This project's.
pub(crate) struct ThisCpuMalloc;

/// What the preloaded library has by the name of `malloc`. It is not inlined, since the others are not.
#[inline(never)]
extern "C" fn malloc(size: usize) -> *mut u8 {
    thiscpu_malloc::allocate(size).map_or(ptr::null_mut(), NonNull::as_ptr)
}

/// What it has by the name of `free`.
///
/// # Safety
///
/// The block is null, or from `malloc`, and nobody uses it.
#[inline(never)]
unsafe extern "C" fn free(block: *mut u8) {
    if let Some(block) = NonNull::new(block) {
        // SAFETY: by this function's own contract.
        unsafe { thiscpu_malloc::free(block) };
    }
}

impl Allocator for ThisCpuMalloc {
    fn new(_size: usize) -> Self {
        Self
    }

    #[inline(always)]
    fn alloc(&self, size: usize) -> *mut u8 {
        malloc(size)
    }

    #[inline(always)]
    unsafe fn free(&self, object: *mut u8, _size: usize) {
        // SAFETY: by this function's own contract.
        unsafe { free(object) };
    }
}

//! This project's cache and `malloc`, called as programs call them.
//!
//! `thiscpu-malloc` and `thiscpu-hardened` run the same code, in separate processes of which one is
//! hardened. Two copies of a loop can differ by some percent because of their addresses, which is
//! more than hardening costs.

use std::{
    alloc::Layout,
    hint::black_box,
    ptr::{self, NonNull},
};

use anyhow::{Result, ensure};
use thiscpu::RawCache;
use thiscpu_malloc::{define_free, define_malloc, export};

use super::Allocator;

/// `thiscpu-cache`: the library's cache of objects of one size, inlined as in programs.
pub(crate) struct ThisCpuCache(RawCache);

impl Allocator for ThisCpuCache {
    fn new(size: usize) -> Self {
        let layout =
            Layout::from_size_align(size, 8).expect("the size is small, and 8 is a power of two");
        Self(RawCache::new(layout))
    }

    #[inline(always)]
    fn alloc(&self, _size: usize) -> *mut u8 {
        self.0.alloc().map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    #[inline(always)]
    unsafe fn free(&self, object: *mut u8, _size: usize) {
        // SAFETY: the caller guarantees that the object is from this cache, which makes it not
        // null, and that it is no longer used.
        unsafe { self.0.free(NonNull::new_unchecked(object)) };
    }
}

// The preloaded library's `malloc`. It is not inlined, because the other contenders are not.
define_malloc!(
    fn malloc() -> *mut u8, in ".text.malloc", gated: malloc_gated
);

#[inline(never)]
extern "C-unwind" fn malloc_gated(size: usize, is_counted: bool) -> *mut u8 {
    export::alloc_gated(size, is_counted, |size, cell| malloc_cold(size, cell))
}

#[cold]
#[inline(never)]
extern "C-unwind" fn malloc_cold(size: usize, cell: usize) -> *mut u8 {
    export::alloc_cold(size, cell).map_or(ptr::null_mut(), NonNull::as_ptr)
}

define_free!(
    /// Frees a block, as the preloaded library's `free` does.
    ///
    /// # Safety
    ///
    /// The block must be null, or from `malloc` and no longer used.
    fn free(*mut u8), in ".text.free"
);

/// This project's `malloc`.
pub(crate) struct ThisCpuMalloc;

impl Allocator for ThisCpuMalloc {
    fn new(_size: usize) -> Self {
        // This call is never made, but the compiler must not know that. If it sees no call that
        // enables counting in the whole program, it turns values that the preloaded library loads
        // into constants.
        if black_box(false) {
            thiscpu_malloc::enable_counting();
        }
        Self
    }

    #[inline(always)]
    fn alloc(&self, size: usize) -> *mut u8 {
        malloc(size)
    }

    #[inline(always)]
    unsafe fn free(&self, object: *mut u8, _size: usize) {
        // SAFETY: the caller guarantees that the object is from `alloc`, which calls this `malloc`,
        // and that it is no longer used.
        unsafe { free(object) };
    }
}

/// This project's `malloc`, in a process in which `harden` was called.
pub(crate) type ThisCpuHardened = ThisCpuMalloc;

/// Enables guarded blocks in this process, like `thiscpu run --harden`.
///
/// # Errors
///
/// Returns an error if there is no memory for guarded blocks.
pub(crate) fn harden() -> Result<()> {
    ensure!(thiscpu_malloc::enable_hardening(), "cannot harden: no memory for guarded blocks");
    Ok(())
}

//! `thiscpu-malloc` and `thiscpu-hardened`: this project's `malloc`, called as programs call one.
//!
//! Both are the same code, in processes of which one is hardened: two copies of a loop may differ by some per cent, by
//! where they lie in memory, which is more than what hardening costs.

use std::hint::black_box;

use anyhow::{Result, ensure};
use thiscpu_malloc::{define_free, define_malloc, export};

use super::Allocator;

// What the preloaded library has by the name of `malloc`. It is not inlined, since the others are not.
define_malloc!(
    fn malloc() -> *mut u8, in ".text.malloc", gated: malloc_gated
);

#[inline(never)]
extern "C-unwind" fn malloc_gated(size: usize) -> *mut u8 {
    export::alloc_gated(size, |size, cell| malloc_cold(size, cell))
}

#[cold]
#[inline(never)]
extern "C-unwind" fn malloc_cold(size: usize, cell: usize) -> *mut u8 {
    export::alloc_cold(size, cell).map_or(std::ptr::null_mut(), std::ptr::NonNull::as_ptr)
}

define_free!(
    /// What it has by the name of `free`.
    ///
    /// # Safety
    ///
    /// The block is null, or from `malloc`, and nobody uses it.
    fn free(*mut u8), in ".text.free"
);

/// This project's.
pub(crate) struct ThisCpuMalloc;

impl Allocator for ThisCpuMalloc {
    fn new(_size: usize) -> Self {
        // Never. But a compiler that sees the whole program, and nobody in it who has calls counted, makes constants of what
        // the preloaded library has to load.
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
        // SAFETY: by this function's own contract.
        unsafe { free(object) };
    }
}

/// Has this process's blocks guarded as with `thiscpu run --harden`.
///
/// # Errors
///
/// If there is no memory for guarded blocks.
pub(crate) fn harden() -> Result<()> {
    ensure!(thiscpu_malloc::enable_hardening(), "there is no memory for guarded blocks");
    Ok(())
}

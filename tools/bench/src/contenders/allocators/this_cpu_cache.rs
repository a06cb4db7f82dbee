//! `thiscpu-cache`: the library's cache of objects of one size, inlined as in programs that use it.

use std::{
    alloc::Layout,
    ptr::{self, NonNull},
};

use thiscpu::RawCache;

use super::Allocator;

/// The library's cache.
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

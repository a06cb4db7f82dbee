//! malloc as the preloaded library exports it: in assembly, on x86-64.

use std::ptr::{self, NonNull};

use thiscpu_malloc::{define_malloc, export};

define_malloc!(
    pub(crate) fn malloc() -> *mut u8, in ".text.malloc", gated: gated
);

extern "C-unwind" fn gated(size: usize, is_counted: bool) -> *mut u8 {
    export::alloc_gated(size, is_counted, |size, cell| cold(size, cell))
}

extern "C-unwind" fn cold(size: usize, cell: usize) -> *mut u8 {
    export::alloc_cold(size, cell).map_or(ptr::null_mut(), NonNull::as_ptr)
}

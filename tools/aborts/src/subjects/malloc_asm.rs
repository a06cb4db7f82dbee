//! `malloc` and `free` in assembly.

use std::ptr::{self, NonNull};

use thiscpu::__internal;
use thiscpu::{define_free_fn, define_malloc_fn};

use super::class::{self, CELL, OBJECT};
use crate::ops;

/// The largest size that has a cell.
const SIZE_MAX: usize = OBJECT.size();

static CELLS: [u16; SIZE_MAX + 1] = [CELL as u16; SIZE_MAX + 1];

/// Sizes from this one on have no cell.
static LIMIT: usize = SIZE_MAX + 1;
/// No call is counted.
static INTERVAL: u64 = 0;

define_malloc_fn!(
    fn alloc_asm() -> *mut u8, in ".text.alloc_asm",
    cells: CELLS, largest: SIZE_MAX, limit: LIMIT, interval: INTERVAL,
    gated: alloc_gated
);

define_free_fn!(
    fn free_asm(*mut u8), in ".text.free_asm",
    general: free_other, gated: free_gated
);

extern "C-unwind" fn alloc_gated(_: usize, _: bool) -> *mut u8 {
    ops::alloc_of(class::checked(), class::checked()).map_or(ptr::null_mut(), NonNull::as_ptr)
}

unsafe extern "C-unwind" fn free_other(object: *mut u8) {
    panic!("{object:p} is an object, but its tag was not found");
}

unsafe extern "C-unwind" fn free_gated(object: *mut u8) {
    let object = NonNull::new(object).expect("an object in a slab has an address");
    // SAFETY: the caller of `free` guarantees that the object is from this class and is no longer
    // used.
    unsafe { class::checked().free_slow(object) };
}

pub(super) fn alloc(calls: u32) -> Option<NonNull<u8>> {
    class::enable(calls);
    NonNull::new(alloc_asm(OBJECT.size()))
}

/// # Safety
///
/// The object must be from the class, and must not be used any more.
pub(super) unsafe fn free(object: NonNull<u8>) {
    class::enable(class::FAR);
    __internal::disable_fast_free(false);
    // SAFETY: the caller guarantees that the object is from the class and is no longer used.
    unsafe { free_asm(object.as_ptr()) };
}

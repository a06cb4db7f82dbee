//! malloc and free in assembly, for a class of the group at the front.

use std::ptr::{self, NonNull};

use thiscpu::__internal;
use thiscpu::{define_free_fn, define_malloc_fn};

use super::slab::{CELL, GROUP, OBJECT, class, enable_direct};
use crate::ops;

/// One more than that has no cell.
const MOST: usize = OBJECT.size();

static CELLS: [u16; MOST + 1] = [CELL as u16; MOST + 1];

define_malloc_fn!(
    fn take() -> *mut u8, in ".text.take",
    cells: CELLS, largest: MOST, group: GROUP, gated: take_farther
);

define_free_fn!(
    fn give(*mut u8), in ".text.give",
    group: GROUP, general: give_otherwise, gated: give_farther
);

extern "C-unwind" fn take_farther(_: usize) -> *mut u8 {
    ops::alloc_of(class(), class()).map_or(ptr::null_mut(), NonNull::as_ptr)
}

unsafe extern "C-unwind" fn give_otherwise(object: *mut u8) {
    panic!("{object:p} is an object, and was not found");
}

unsafe extern "C-unwind" fn give_farther(object: *mut u8) {
    let object = NonNull::new(object).expect("what is in a slab is not null");
    // SAFETY: the promise of the caller of `free`: it was one of this class, and is nobody's now.
    unsafe { class().free_slow(object) };
}

pub(super) fn alloc() -> Option<NonNull<u8>> {
    enable_direct();
    NonNull::new(take(OBJECT.size()))
}

/// # Safety
///
/// The object is of the class, and nobody uses it.
pub(super) unsafe fn free(object: NonNull<u8>) {
    enable_direct();
    __internal::disable_fast_free(false);
    // SAFETY: the caller's promise.
    unsafe { give(object.as_ptr()) };
}

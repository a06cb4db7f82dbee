//! How all cases allocate: what a program does with an object, in the least of it.

use std::hint::black_box;

use crate::contenders::allocators::Allocator;

/// Allocates an object and writes to it.
///
/// # Panics
///
/// If there is no memory.
#[inline(always)]
pub(super) fn take<A: Allocator>(allocator: &A, size: usize) -> *mut u8 {
    let object = allocator.alloc(size);
    assert!(!object.is_null(), "there is no memory for an object of {size} bytes");
    // SAFETY: an object has eight bytes, aligned to eight, and nobody else has this one.
    unsafe { object.cast::<u64>().write_volatile(size as u64) };
    // Nothing is known of it any more, so that it has to be a real object.
    black_box(object)
}

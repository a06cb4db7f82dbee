//! The allocation of all cases: what a program does at least with a new object.

use std::arch::asm;

use crate::contenders::allocators::Allocator;

/// Allocates an object, writes to it, and returns it.
///
/// # Panics
///
/// If there is no memory.
#[inline(always)]
pub(super) fn alloc_and_touch<A: Allocator>(allocator: &A, size: usize) -> *mut u8 {
    let object = allocator.alloc(size);
    if object.is_null() {
        no_memory(size);
    }
    // SAFETY: `alloc` returns objects of at least eight bytes, aligned to eight, for this caller
    // alone.
    unsafe { object.cast::<u64>().write_volatile(size as u64) };
    opaque(object)
}

/// Allocates an object, writes a byte to each `stride` bytes of it, and returns it.
///
/// # Panics
///
/// If there is no memory.
#[inline(always)]
pub(in crate::workloads) fn alloc_and_touch_each<A: Allocator>(
    allocator: &A,
    size: usize,
    stride: usize,
) -> *mut u8 {
    let object = allocator.alloc(size);
    if object.is_null() {
        no_memory(size);
    }
    let mut offset = 0;
    while offset < size {
        // SAFETY: `offset` is within the object, which `alloc` returned for this caller alone.
        unsafe { object.add(offset).write_volatile(1) };
        offset += stride;
    }
    opaque(object)
}

/// Hides the object's origin from the compiler, so that it cannot remove the allocation.
///
/// `black_box` stores its argument to memory and loads it. That takes about as long as an
/// allocation, and each contender would wait for it, since its next call takes the object that this
/// one frees.
#[inline(always)]
fn opaque(mut object: *mut u8) -> *mut u8 {
    // SAFETY: the assembly has no instructions.
    unsafe {
        asm!("/* {object} */", object = inout(reg) object, options(nostack, preserves_flags))
    };
    object
}

/// Panics, with the size in the message.
///
/// It takes the size by value: formatted by the caller, it would be stored before each allocation.
#[cold]
#[inline(never)]
fn no_memory(size: usize) -> ! {
    panic!("cannot allocate an object of {size} bytes: no memory");
}

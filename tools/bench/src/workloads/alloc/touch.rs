//! How all cases allocate: what a program does with an object, in the least of it.

use std::arch::asm;

use crate::contenders::allocators::Allocator;

/// Allocates an object and writes to it.
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
    // SAFETY: an object has eight bytes, aligned to eight, and nobody else has this one.
    unsafe { object.cast::<u64>().write_volatile(size as u64) };
    opaque(object)
}

/// The same, of which nothing is known any more, so that it has to be a real object.
///
/// `black_box` would do, but it sends what it is given through memory. That takes about as long as an allocation, and each
/// contender would have to wait for it: its next call takes what this one gives back.
#[inline(always)]
fn opaque(mut object: *mut u8) -> *mut u8 {
    // SAFETY: there is no instruction.
    unsafe {
        asm!("/* {object} */", object = inout(reg) object, options(nostack, preserves_flags))
    };
    object
}

/// Takes the size by value: where it is formatted in place, it is stored in memory before each call.
#[cold]
#[inline(never)]
fn no_memory(size: usize) -> ! {
    panic!("there is no memory for an object of {size} bytes");
}

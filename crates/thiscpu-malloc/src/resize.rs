//! Blocks that change their size, where they are if that can be done.

use core::ptr::{self, NonNull};

use thiscpu::inside::large;
use thiscpu::probe::save_errno;

use crate::alloc::allocate_aligned;
use crate::classes::{CLASS_SIZE_MAX, class_of_cell, size_of_class};
use crate::free::{abort_invalid, free};
use crate::heap::cell_of;
use crate::{guard, stats};

/// A block of at least `size` bytes in place of another, with what that began with. `None` if there is no memory; then the other is
/// as it was.
///
/// It stays where it is if it is of the same size class, or not much more than half of it is wanted, or if it is
/// large and what follows it is free.
///
/// # Safety
///
/// As for [`free`].
pub unsafe fn resize(block: NonNull<u8>, size: usize) -> Option<NonNull<u8>> {
    // SAFETY: the caller's promise.
    unsafe { resize_aligned(block, size, if size > 8 { 16 } else { 8 }) }
}

/// The same for a block whose alignment must stay.
///
/// # Safety
///
/// As for [`free`]; the block is aligned to `align`, or that is 16.
pub(crate) unsafe fn resize_aligned(
    block: NonNull<u8>,
    size: usize,
    align: usize,
) -> Option<NonNull<u8>> {
    // SAFETY: the caller's promise.
    let before = unsafe { usable_size(block) };
    if size <= before && size >= before / 2 && size <= CLASS_SIZE_MAX && before <= CLASS_SIZE_MAX {
        if size < before && guard::owns(block.as_ptr().addr()) {
            guard::shrink(block, size);
        }
        return Some(block);
    }
    if before > CLASS_SIZE_MAX && size > CLASS_SIZE_MAX && resize_large(block, before, size) {
        return Some(block);
    }
    let new = allocate_aligned(size, align)?;
    // SAFETY: both are that large, and the new one is nobody else's; the old one is the caller's.
    unsafe {
        ptr::copy_nonoverlapping(block.as_ptr(), new.as_ptr(), before.min(size));
        free(block);
    }
    Some(new)
}

fn resize_large(block: NonNull<u8>, before: usize, size: usize) -> bool {
    let _errno = save_errno();
    let address = block.as_ptr().addr();
    let is_done = size <= isize::MAX as usize && large::resize(address, size);
    if is_done {
        stats::record_large(large::size(address).unwrap_or(0) as i64 - before as i64, 0);
    }
    is_done
}

/// How many bytes of a block may be used: as many as were asked for, or more. An address that is no block ends the process.
///
/// # Safety
///
/// The block is one of this crate's.
pub unsafe fn usable_size(block: NonNull<u8>) -> usize {
    let address = block.as_ptr().addr();
    match cell_of(address) {
        Some(cell) => size_of_class(class_of_cell(cell)),
        None if guard::owns(address) => guard::usable_size(block),
        None => large::size(address).unwrap_or_else(|| abort_invalid(address)),
    }
}

//! The size of a block, and changing it: in place if possible.

use core::ptr::{self, NonNull};

use thiscpu::__internal::{large, save_errno};

use crate::alloc::{alloc_run, allocate_aligned};
use crate::classes::{MEDIUM_SIZE_MAX, class_of_cell, size_of_class};
use crate::free::{abort_invalid, free};
use crate::heap::{cell_of, class_of_sampled, fast_cell_of, may_be_in_use};
use crate::{decay, guard, profile, stats};

/// Returns a block of at least `size` bytes with the contents of `block`, which it replaces.
///
/// Returns `None` if memory is exhausted; `block` is unchanged then.
///
/// The block stays in place if it fits and at least half of it is still needed. A run of chunks
/// that keeps more than 32 KiB moves only if it grows and the memory behind it is in use. From
/// 1 MiB on, its pages then move with it, if the system can do that; otherwise it is copied.
///
/// # Safety
///
/// The block was allocated by this crate and not freed since. If a block is returned, no pointer to
/// the old one is used any more.
pub unsafe fn resize(block: NonNull<u8>, size: usize) -> Option<NonNull<u8>> {
    // SAFETY: the caller guarantees what `resize_aligned` requires, and 8 is every block's
    // alignment.
    unsafe { resize_aligned(block, size, if size > 8 { 16 } else { 8 }) }
}

/// Resizes like [`resize`], with a block that is aligned to `align` before and afterwards.
///
/// # Safety
///
/// The caller guarantees what [`resize`] requires. The block is aligned to `align`, or that is 16.
pub(crate) unsafe fn resize_aligned(
    block: NonNull<u8>,
    size: usize,
    align: usize,
) -> Option<NonNull<u8>> {
    // SAFETY: the caller guarantees that the block is allocated.
    let before = unsafe { usable_size(block) };
    let is_run = before > MEDIUM_SIZE_MAX && large::size(block.as_ptr().addr()).is_some();
    if is_run
        && size > MEDIUM_SIZE_MAX
        && let Some(resized) = resize_run(block, before, size, align)
    {
        return Some(resized);
    }
    if !is_run && size <= before && size >= before / 2 {
        if size < before && guard::owns(block.as_ptr().addr()) {
            guard::shrink(block, size);
        }
        decay::count_call();
        return Some(block);
    }
    let Some(new) = allocate_resized(before, size, align, is_run) else {
        // A block that shrinks can stay as it is.
        return (size <= before).then_some(block);
    };
    // SAFETY: both blocks have the bytes that are copied, and do not overlap, since both are
    // allocated. The caller guarantees that the old one is not used any more.
    unsafe {
        ptr::copy_nonoverlapping(block.as_ptr(), new.as_ptr(), before.min(size));
        free(block);
    }
    Some(new)
}

/// The size from which on a growing block becomes a run of chunks, which may grow in place.
const RUN_BYTES_MIN: usize = 512 * 1024;

/// Allocates the block that is to replace one of `before` bytes, which may be a run.
///
/// A large block that grows is likely to grow on. So it gets at least an eighth more than it had.
/// Otherwise it would be copied sixteen times before it has doubled.
fn allocate_resized(before: usize, size: usize, align: usize, is_run: bool) -> Option<NonNull<u8>> {
    if size <= before || before <= MEDIUM_SIZE_MAX {
        return allocate_aligned(size, align);
    }
    let roomy = if is_run { size } else { size.max(before + before / 8) };
    let new = match size >= RUN_BYTES_MIN {
        true => alloc_run(roomy, align),
        false => allocate_aligned(roomy.min(RUN_BYTES_MIN), align),
    };
    new.or_else(|| allocate_aligned(size, align))
}

/// Resizes a run of chunks without copying, where that is possible; returns where it is then.
fn resize_run(block: NonNull<u8>, before: usize, size: usize, align: usize) -> Option<NonNull<u8>> {
    let _errno = save_errno();
    let from = block.as_ptr().addr();
    let size = (size <= isize::MAX as usize).then_some(size)?;
    let sample = large::take_sample(from);
    let Some(to) = large::resize(from, size, align) else {
        if sample != 0 {
            large::set_sample(from, sample);
        }
        return None;
    };
    profile::resized_large(from, sample, to, size);
    stats::record_large(large::size(to).unwrap_or(0) as i64 - before as i64, 0);
    decay::slow_call();
    NonNull::new(ptr::with_exposed_provenance_mut(to))
}

/// Returns the number of usable bytes of a block: at least as many as were requested.
///
/// Aborts if no block begins at the address, where that is known: always if it is outside the heap,
/// or not aligned like blocks of its class.
///
/// # Safety
///
/// The block was allocated by this crate and not freed since.
#[inline]
pub unsafe fn usable_size(block: NonNull<u8>) -> usize {
    // Servers ask for each block that they allocate and free, and most blocks are in small classes.
    let address = block.as_ptr().addr();
    match fast_cell_of(address) {
        Some(cell) => size_of_class(class_of_cell(cell)),
        None => usable_size_general(block),
    }
}

#[inline(never)]
fn usable_size_general(block: NonNull<u8>) -> usize {
    let address = block.as_ptr().addr();
    if let Some(class) = class_of_sampled(address) {
        return profile::usable_size(block, class);
    }
    match cell_of(address) {
        Some(cell) if !may_be_in_use(address, cell) => abort_invalid(address),
        Some(cell) => size_of_class(class_of_cell(cell)),
        None if guard::owns(address) => guard::usable_size(block),
        None => large::size(address).unwrap_or_else(|| abort_invalid(address)),
    }
}

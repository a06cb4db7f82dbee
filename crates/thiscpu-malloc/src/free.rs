//! Blocks that are freed: to their class, the pool of guarded blocks, or their runs of units.

use core::ptr::NonNull;

use thiscpu::inside::{HAS_FRONT, large};
use thiscpu::probe::save_errno;

use crate::classes::class_of_cell;
use crate::fast_path::{COUNTED, HARDENED, has_flag, is_enabled};
use crate::heap::{
    self, any_cell_at, cell_at, class_at, objects, objects_at, objects_at_front, objects_ready_at,
};
use crate::{guard, stats};

/// Frees a block.
///
/// What is no block, or was freed before, ends the process with a message that names the address; see
/// [`RawCache::free`](thiscpu::RawCache::free) for when that is noticed.
///
/// # Safety
///
/// The block is one of this crate's, and nobody uses it any more.
#[inline(always)]
pub unsafe fn free(block: NonNull<u8>) {
    match cell_at(block.as_ptr().addr()) {
        // SAFETY: the caller's promise; it is of that class.
        Some(cell) => unsafe { free_to_cell(block, cell) },
        // SAFETY: the caller's promise.
        None => unsafe { free_otherwise_or_null(block.as_ptr()) },
    }
}

/// The same for what may be null, which is nothing.
///
/// # Safety
///
/// As for [`free`].
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub unsafe fn free_or_null(block: *mut u8) {
    match cell_at(block.addr()) {
        Some(cell) => {
            // SAFETY: there is nothing of any class at address 0.
            let block = unsafe { NonNull::new_unchecked(block) };
            // SAFETY: the caller's promise; it is of that class.
            unsafe { free_to_cell(block, cell) }
        }
        // SAFETY: the caller's promise.
        None => unsafe { free_otherwise_or_null(block) },
    }
}

/// # Safety
///
/// As for [`free`]; the block is of the class of that cell.
#[inline(always)]
unsafe fn free_to_cell(block: NonNull<u8>, cell: usize) {
    // SAFETY: the caller's promise. Cells are found once sections are ready.
    unsafe {
        if HAS_FRONT {
            objects_at_front(cell).free_or(block, || free_farther(block));
        } else {
            objects_ready_at(cell).free_or(block, || free_slowly(block));
        }
    }
}

/// Where there is no tag at hand: it is of no class, or something stands in the way, or address space is scarce.
///
/// # Safety
///
/// As for `free_or_null`.
#[inline(never)]
pub unsafe extern "C" fn free_otherwise_or_null(block: *mut u8) {
    let Some(block) = NonNull::new(block) else { return };
    // SAFETY: the caller's promise; where it is of a class it is of that. Short ways are open once sections are ready.
    unsafe {
        match any_cell_at(block.as_ptr().addr()) {
            Some(cell) if is_enabled() => free_to_cell(block, cell),
            Some(cell) => free_watched(block, cell),
            None => free_of_no_class(block),
        }
    }
}

/// Where the shortest way does not do. The block is marked as free by now.
///
/// # Safety
///
/// As for `free`.
#[inline(never)]
pub unsafe extern "C" fn free_farther(block: NonNull<u8>) {
    heap::come_near();
    // Nor is there a tag at hand where address space is scarce.
    let cell = if is_enabled() { any_cell_at(block.as_ptr().addr()) } else { None };
    // SAFETY: the caller's promise; it is of that class. Short ways are open once sections are ready.
    unsafe {
        match cell {
            Some(cell) if objects_ready_at(cell).free_marked(block) => {}
            _ => free_slowly(block),
        }
    }
}

#[cold]
#[inline(never)]
unsafe extern "C" fn free_slowly(block: NonNull<u8>) {
    let Some(class) = class_at(block.as_ptr().addr()) else { return };
    if has_flag(HARDENED) {
        objects(class).check(block);
    }
    // SAFETY: the caller's promise; it is of that class.
    unsafe { objects(class).free_slowly(block) };
}

/// # Safety
///
/// As for [`free`]; the block is of the class of that cell.
#[inline(never)]
unsafe extern "C" fn free_watched(block: NonNull<u8>, cell: usize) {
    let objects = objects_at(cell);
    let mut is_hit = true;
    let slowly = || {
        is_hit = false;
        // SAFETY: the caller's promise; it is of that class.
        unsafe { free_slowly(block) };
    };
    // SAFETY: the caller's promise; it is of that class.
    unsafe { objects.free_or(block, slowly) };
    if has_flag(COUNTED) {
        stats::count_free(class_of_cell(cell), is_hit);
    }
}

/// # Safety
///
/// As for `free`.
#[inline(never)]
unsafe extern "C" fn free_of_no_class(block: NonNull<u8>) {
    let _errno = save_errno();
    let address = block.as_ptr().addr();
    if guard::owns(address) {
        // SAFETY: the caller's promise; it is in the pool.
        return unsafe { guard::free(block) };
    }
    match large::size(address) {
        Some(size) if large::free(address) => stats::record_large(-(size as i64), -1),
        _ => abort_invalid(address),
    }
}

/// Says what is wrong with an address at which no block is, and ends the process.
pub(crate) fn abort_invalid(address: usize) -> ! {
    let (fault, size) = large::fault_at(address);
    fault.report(address, size)
}

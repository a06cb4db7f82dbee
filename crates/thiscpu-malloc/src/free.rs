//! Freeing, as one chain.
//!
//! ```text
//! free           free_fast, inlined: finds the class by the fast lookup
//!  free_in_class   a direct section
//!   free_gated      enables direct sections, then enters a section by the gate
//!    free_flush      the lane is full: trades sheaves with the barn
//!  free_general    the fast lookup found no class; a full one decides:
//!   free_in_class         the class is large, or the fast lookup does not cover it
//!   free_in_dropped_pages the slab has dropped pages, and its bits say whether there is a block
//!   free_counted          calls are counted, all blocks guarded, or sections not ready
//!   free_run_or_guarded   the block is sampled or guarded, or belongs to no class
//! ```
//!
//! `libthiscpu_malloc.so` enters the same chain: its `free` is the fast path in assembly, see
//! [`export`](crate::export).

use core::hint::black_box;
use core::ptr::NonNull;

use thiscpu::__internal::{HAS_DIRECT, error_in_slab, is_outside_slab, large, save_errno};

use crate::classes::{class_of_cell, is_large, size_of_class};
use crate::fast_path::{HARDENED, has_flag, is_counting, is_enabled};
use crate::heap::{
    self, Ended, cell_of, direct_objects_at, end_use, fast_cell_of, gated_objects_at, objects_at,
};
use crate::{decay, guard, profile, stats};

/// Frees a block.
///
/// An invalid or a double free aborts the process, with a message that names the address. A free of
/// a misaligned address aborts at once. [`RawCache::free`](thiscpu::RawCache::free) says when the
/// others are detected.
///
/// # Safety
///
/// The block was allocated by this crate and not freed since, and nothing uses it any more.
#[inline(always)]
pub unsafe fn free(block: NonNull<u8>) {
    // SAFETY: the caller guarantees that the block is allocated and not used any more.
    unsafe { free_fast(block.as_ptr()) };
}

/// Frees a block, or does nothing if the pointer is null.
///
/// # Safety
///
/// The pointer is null, or the caller guarantees what [`free`] requires.
#[inline(always)]
pub unsafe fn free_fast(block: *mut u8) {
    match fast_cell_of(block.addr()) {
        Some(cell) => {
            // SAFETY: no class has a block at address 0.
            let block = unsafe { NonNull::new_unchecked(block) };
            // SAFETY: the caller guarantees that the block is allocated and not used any more; its
            // address belongs to the class of this cell.
            unsafe { free_in_class(block, cell) }
        }
        // SAFETY: the caller guarantees that the pointer is null or an allocated block that is not
        // used any more.
        None => unsafe { free_general(block) },
    }
}

/// Frees a block into this CPU's lane by the shortest section there is.
///
/// # Safety
///
/// The caller guarantees what [`free`] requires. The block is of the class at `cell`, and sections
/// are ready.
#[inline(always)]
unsafe fn free_in_class(block: NonNull<u8>, cell: usize) {
    // SAFETY: the caller guarantees that the block is of this class and not used any more, and that
    // sections are ready.
    unsafe {
        if HAS_DIRECT {
            direct_objects_at(cell).free_or(block, || free_gated(block));
        } else {
            gated_objects_at(cell).free_or(block, || free_flush(block, cell));
        }
    }
}

// These are `extern "C"`, so they cannot unwind, and their callers need no frame to call them.

/// Frees a block for which the fast path found no class, or does nothing for null.
///
/// That is so if it belongs to none or to a large one, if its address is not aligned like blocks of
/// its class, if its slab has dropped pages, if a flag blocks the fast path, or where address space
/// is scarce.
///
/// # Safety
///
/// The pointer is null, or the caller guarantees what [`free`] requires.
#[inline(never)]
pub unsafe extern "C" fn free_general(block: *mut u8) {
    let Some(block) = NonNull::new(block) else { return };
    // SAFETY: the caller guarantees that the block is allocated and not used any more. Its address
    // belongs to the class of the cell found. If the fast path is enabled, sections are ready.
    unsafe {
        match end_use(block.as_ptr().addr()) {
            Ended::InClass(cell) if is_enabled() => free_in_class(block, cell),
            Ended::InClass(cell) => free_counted(block, cell),
            Ended::InDroppedPages(cell) => free_in_dropped_pages(block, cell),
            Ended::NoClass => free_run_or_guarded(block),
            Ended::Invalid => report_invalid(block),
        }
    }
}

/// Frees a block whose slab has dropped pages, or reports that none in use begins there.
///
/// The free blocks of these pages have lost their marks, so the slab's bits are asked. A separate
/// function, because [`free_general`] would otherwise need a frame for other blocks too.
///
/// # Safety
///
/// The caller guarantees what [`free`] requires. The class is at `cell`.
#[inline(never)]
unsafe extern "C" fn free_in_dropped_pages(block: NonNull<u8>, cell: usize) {
    if !is_outside_slab(block.as_ptr().addr()) {
        abort_invalid(block.as_ptr().addr());
    }
    // SAFETY: the caller guarantees that the block is of this class and not used any more. If the
    // fast path is enabled, sections are ready.
    unsafe {
        match is_enabled() {
            true => free_in_class(block, cell),
            false => free_counted(block, cell),
        }
    }
}

/// Frees a block that a direct section could not free. It is already marked as free.
///
/// # Safety
///
/// The caller guarantees what [`free`] requires, and the block carries its free mark.
#[inline(never)]
pub unsafe extern "C" fn free_gated(block: NonNull<u8>) {
    heap::enable_direct();
    let Some(cell) = cell_of(block.as_ptr().addr()) else { return };
    // SAFETY: the caller guarantees that the block is marked as free and not used any more; it is
    // of this class. If the fast path is enabled, sections are ready.
    unsafe {
        if !is_enabled() || !gated_objects_at(cell).free_marked(block) {
            free_flush(block, cell);
        }
    }
}

/// Frees a block for which the lane has no room. It is already marked as free.
///
/// # Safety
///
/// The caller guarantees what [`free`] requires. The block is of the class at `cell`, and carries
/// its free mark.
#[cold]
#[inline(never)]
unsafe extern "C" fn free_flush(block: NonNull<u8>, cell: usize) {
    let _errno = save_errno();
    let objects = objects_at(cell);
    if has_flag(HARDENED) {
        objects.check(block);
    }
    // SAFETY: the caller guarantees that the block is of this class, marked, and not used any more.
    // Only one of these calls takes it: `free_spare` takes it only if it returns true.
    unsafe {
        if objects.free_spare(block) {
            return;
        }
        objects.free_slow(block);
    }
    let class = class_of_cell(cell);
    heap::bound_lane(class);
    decay::slow_free(class);
}

/// Frees a block of a class while a flag blocks the fast path, and counts the call.
///
/// # Safety
///
/// The caller guarantees what [`free`] requires. The block is of the class at `cell`.
#[inline(never)]
unsafe extern "C" fn free_counted(block: NonNull<u8>, cell: usize) {
    let mut is_hit = true;
    let flush = || {
        is_hit = false;
        // SAFETY: the caller guarantees that the block is of this class and not used any more.
        // `free_or` has marked it.
        unsafe { free_flush(block, cell) };
    };
    // SAFETY: the caller guarantees that the block is of this class and not used any more.
    unsafe { objects_at(cell).free_or(block, flush) };
    if is_counting() {
        stats::count_free(class_of_cell(cell), is_hit);
    }
}

/// Frees a block that belongs to no class: a sampled, guarded or large one.
///
/// # Safety
///
/// The caller guarantees what [`free`] requires.
#[inline(never)]
unsafe extern "C" fn free_run_or_guarded(block: NonNull<u8>) {
    let _errno = save_errno();
    let address = block.as_ptr().addr();
    if let Some(class) = heap::class_of_sampled(address) {
        // SAFETY: the caller guarantees that the block is allocated and not used any more.
        return unsafe { profile::free_sampled(block, class) };
    }
    if guard::owns(address) {
        // SAFETY: the address is in the pool, and the caller guarantees that its block is not
        // used any more.
        return unsafe { guard::free(block) };
    }
    profile::forget_large(address);
    match large::size(address) {
        Some(size) if large::free(address) => {
            stats::record_large(-(size as i64), -1);
            decay::slow_call();
        }
        _ => abort_invalid(address),
    }
}

/// Reports that no block in use begins at an address, for a caller that then needs no frame.
#[cold]
#[inline(never)]
extern "C" fn report_invalid(block: NonNull<u8>) {
    // The compiler must not see that this never returns.
    if black_box(true) {
        abort_invalid(block.as_ptr().addr());
    }
}

/// Reports that no block in use begins at an address, and aborts.
#[cold]
#[inline(never)]
pub(crate) fn abort_invalid(address: usize) -> ! {
    let (error, size) = match cell_of(address).map(class_of_cell) {
        // Of other classes, an address is known to be invalid if no block is aligned like it, or if
        // its slab has dropped pages.
        Some(class) if !is_large(class) => (error_in_slab(address), size_of_class(class)),
        _ => large::error_at(address),
    };
    error.report(address, size)
}

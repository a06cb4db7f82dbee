//! Blocks of large classes: more than 32 KiB, at most 4 MiB.
//!
//! Each block that is handed out must *begin*: [`begin`] notes that it is in use, and clears what
//! its free state says of it.

use core::cell::Cell;
use core::ptr::NonNull;

use thiscpu::__internal::HAS_DIRECT;

use crate::classes::{CLASS_COUNT, is_large, size_of_class};
use crate::fast_path::large_gated_cell;
use crate::heap::{cell_of, direct_objects_at, gated_objects_at, objects, objects_at};

/// Takes a block from this CPU's lane by the shortest section, or calls `cold(size, cell)`.
///
/// `size` is above [`MEDIUM_SIZE_MAX`](crate::classes::MEDIUM_SIZE_MAX); if it is too large for a
/// class, the cell is 0. If a direct section cannot be entered yet, the slow path enables it. A
/// function of its own, because its callers would otherwise need a frame for their other sizes.
#[inline(never)]
pub(crate) fn alloc_or(
    size: usize,
    cold: impl Fn(usize, usize) -> Option<NonNull<u8>>,
) -> Option<NonNull<u8>> {
    let Some(cell) = large_gated_cell(size) else { return cold(size, 0) };
    // Only a hit may begin: a guarded block, which `cold` may return, must not.
    let is_hit = Cell::new(true);
    let miss = || {
        is_hit.set(false);
        cold(size, cell)
    };
    let block = if HAS_DIRECT {
        direct_objects_at(cell).alloc_or(miss)
    } else {
        // SAFETY: the gated path is enabled, so sections are ready.
        unsafe { gated_objects_at(cell) }.alloc_or(miss)
    };
    if is_hit.get()
        && let Some(block) = block
    {
        objects_at(cell).begin_use(block);
    }
    block
}

/// The number of larger classes that may serve a block whose lane has none of its class.
///
/// So a block may be 3/16 larger than its class. Programs that allocate large blocks of any size
/// would otherwise rarely find one in the lane.
const NEAR_CLASSES: usize = 3;

/// Takes a block of a slightly larger class from this CPU's lane.
///
/// The block has not begun.
pub(crate) fn take_near(class: usize, align: usize) -> Option<NonNull<u8>> {
    let larger = class + 1..CLASS_COUNT.min(class + 1 + NEAR_CLASSES);
    let mut fitting = larger.filter(|&class| size_of_class(class).is_multiple_of(align));
    fitting.find_map(|class| objects(class).alloc_or(|| None))
}

/// Begins a block that was just allocated; returns whether it is known to be all zero.
pub(crate) fn begin(block: NonNull<u8>) -> bool {
    // A guarded block has no cell.
    cell_of(block.as_ptr().addr()).is_some_and(|cell| objects_at(cell).begin_use(block))
}

/// Begins a block if it was allocated for a large class.
pub(crate) fn begin_if_large(class: usize, block: Option<NonNull<u8>>) -> Option<NonNull<u8>> {
    if is_large(class) {
        block.inspect(|&block| {
            begin(block);
        })
    } else {
        block
    }
}

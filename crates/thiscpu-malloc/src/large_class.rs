//! Blocks of large classes: more than 32 KiB, at most 4 MiB.
//!
//! Each block that is handed out must *begin*: [`begin`] notes that it is in use, and clears what
//! its free state says of it.

use core::ptr::NonNull;

use crate::classes::{CLASS_COUNT, is_large, size_of_class};
use crate::heap::{cell_of, gated_objects_at, objects, objects_at};

/// Takes a block of the class at `cell` from this CPU's lane by the gate.
///
/// A function of its own, because it would be inlined into each caller of
/// [`alloc_gated_or`](crate::alloc::alloc_gated_or).
///
/// # Safety
///
/// Sections are ready: `fast_path` is enabled, or has been.
#[inline(never)]
pub(crate) unsafe extern "C" fn take(cell: usize) -> Option<NonNull<u8>> {
    // SAFETY: the caller guarantees that sections are ready.
    let objects = unsafe { gated_objects_at(cell) };
    let block = objects.alloc_or(|| None)?;
    objects.begin_use(block);
    Some(block)
}

/// The number of larger classes that may serve a block whose lane has none of its class.
///
/// So a block may be 3/16 larger than its class. Programs that allocate large blocks of any size
/// would otherwise rarely find one in the lane.
const NEAR_CLASSES: usize = 3;

/// Takes a block from the spare sheaf of its class, or of a class a little larger.
///
/// The block has not begun.
pub(crate) fn take_near(class: usize, align: usize) -> Option<NonNull<u8>> {
    objects(class).alloc_spare().or_else(|| {
        let larger = class + 1..CLASS_COUNT.min(class + 1 + NEAR_CLASSES);
        let mut fitting = larger.filter(|&class| size_of_class(class).is_multiple_of(align));
        fitting.find_map(|class| objects(class).alloc_or(|| None))
    })
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

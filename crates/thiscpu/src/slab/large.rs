//! Blocks that are too large for slabs: runs of units, each with one block.

use super::objects::{Shape, Slab};
use super::space::{LARGE, SPACE, UNIT, tag_of};
use crate::sys::atomic::Ordering::Relaxed;

/// A large block.
#[derive(Clone, Copy, Debug)]
pub struct Large {
    /// Where it begins.
    pub address: usize,
    /// Whether all of it is zero.
    pub is_zero: bool,
}

/// A block of so many bytes, aligned to 64 KiB at least. `None` if there is no memory.
pub fn allocate(bytes: usize, align: usize) -> Option<Large> {
    let count = bytes.max(1).checked_next_multiple_of(UNIT)? / UNIT;
    let more = align.div_ceil(UNIT).max(1) - 1;
    let run = SPACE.take(count.checked_add(more)?)?;
    let start = SPACE.address(run.first);
    let before = (start.next_multiple_of(align.max(UNIT)) - start) / UNIT;
    if before > 0 {
        SPACE.give(run.first, before);
    }
    if more > before {
        SPACE.give(run.first + before + count, more - before);
    }
    begin(run.first + before, count);
    Some(Large { address: start + before * UNIT, is_zero: run.is_clean })
}

fn begin(first: usize, units: usize) {
    Slab::begin(first, 0, 0, Shape { size: units * UNIT, units }, LARGE);
}

/// The large block that begins at an address.
fn find(address: usize) -> Option<&'static Slab> {
    let slab = (tag_of(address) == LARGE).then(|| Slab::holding(address)).flatten()?;
    (SPACE.address(slab.unit()) == address).then_some(slab)
}

/// The bytes of the large block that begins at an address, if one does.
pub fn size(address: usize) -> Option<usize> {
    find(address).map(|slab| slab.size.load(Relaxed))
}

/// Ends a large block.
pub fn free(address: usize) -> bool {
    find(address).map(Slab::end).is_some()
}

/// Makes a large block so large where it is, if that can be done. New memory in it may hold anything.
pub fn resize(address: usize, bytes: usize) -> bool {
    let Some(slab) = find(address) else { return false };
    let units = slab.units.load(Relaxed) as usize;
    let Some(wanted) = bytes.max(1).checked_next_multiple_of(UNIT).map(|bytes| bytes / UNIT) else {
        return false;
    };
    let end = slab.unit() + units;
    if wanted > units && SPACE.extend(end, wanted - units).is_none() {
        return false;
    }
    // Its own first, so that units are given back that nothing leads to.
    begin(slab.unit(), wanted);
    if wanted < units {
        SPACE.give(slab.unit() + wanted, units - wanted);
    }
    true
}

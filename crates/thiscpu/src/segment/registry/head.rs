//! The head of a registry, its index and its cells.

use crate::segment::file::error::SegmentErrorKind;
use crate::segment::file::layout::{CELL_BYTES, REGISTRY_HEAD};
use crate::segment::file::mapping::Mapping;
use crate::segment::lanes::sums::Lanes;
use crate::sys::atomic::AtomicU64;

/// How many records that were not published are kept for the next inserts.
const SPARES: usize = 8;

/// The start of a registry.
#[repr(C, align(64))]
pub(super) struct Head {
    /// The epoch of all series. On a cache line that inserts do not change.
    pub(super) epoch: AtomicU64,
    unused: [AtomicU64; 7],
    /// How many cells have been taken.
    pub(super) cells_used: AtomicU64,
    /// How many families and series could not be stored.
    pub(super) refused: AtomicU64,
    more_unused: [AtomicU64; 6],
    pub(super) spares: [AtomicU64; SPARES],
    last_unused: [AtomicU64; 8],
}

const _: () = assert!(size_of::<Head>() as u64 == REGISTRY_HEAD);

/// Returns the head of a segment's registry, if it has one.
pub(super) fn head(mapping: &Mapping) -> Result<&Head, SegmentErrorKind> {
    if mapping.layout.series == 0 {
        return Err(SegmentErrorKind::NoRegistry);
    }
    let at = mapping.before_lanes(mapping.layout.registry_at());
    // SAFETY: a layout with series has the head there, before the lanes, at a multiple of 64. The
    // mapping lives as long as the result. All fields are atomics, so others may write any values.
    Ok(unsafe { &*(at as *const Head) })
}

/// Returns the index of a registry, whose length is a power of two.
#[inline]
pub(super) fn index(mapping: &Mapping) -> Result<&[AtomicU64], SegmentErrorKind> {
    let layout = &mapping.layout;
    let index = mapping.words(layout.registry_at() + REGISTRY_HEAD, layout.series_entries());
    index.ok_or(SegmentErrorKind::Damaged { field: "registry index" })
}

/// Returns where the banks of a cell are, and those of the cells behind it.
///
/// The caller names only cells that exist, and has ensured that they have memory.
#[inline]
pub(super) fn lanes(mapping: &Mapping, cell: u64) -> Option<Lanes> {
    if cell >= mapping.layout.cells() {
        return None;
    }
    let first = mapping.cells() + (CELL_BYTES * cell) as usize;
    let (stride, count) = (mapping.layout.lane_cell_bytes() as usize, mapping.layout.lanes as u32);
    // SAFETY: the layout has this cell in each lane, and those behind it.
    Some(unsafe { Lanes::new(first as *const _, stride, count) })
}

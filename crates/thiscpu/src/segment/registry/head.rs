//! The head of a registry, its index and its cells.

use super::free_list::FreeList;
use super::record::CLASSES;
use crate::segment::file::error::SegmentErrorKind;
use crate::segment::file::layout::{CELL_BYTES, REGISTRY_HEAD};
use crate::segment::file::mapping::Mapping;
use crate::segment::lanes::sums::Lanes;
use crate::sys::atomic::{AtomicU64, Ordering::Relaxed};

/// How many lists of free records there is room for.
const LISTS: usize = 44;

/// The start of a registry.
#[repr(C, align(64))]
pub(super) struct Head {
    /// The epoch of all series. On a cache line that inserts do not change.
    pub(super) epoch: AtomicU64,
    /// Zeros, as all other unused words.
    unused: [AtomicU64; 7],
    /// How many cells have been taken.
    pub(super) cells_used: AtomicU64,
    /// How many families exist or are being made.
    pub(super) families_used: AtomicU64,
    /// How many families and series could not be stored.
    pub(super) refused: AtomicU64,
    more_unused: [AtomicU64; 5],
    /// Cells that no series has, linked by their words.
    pub(super) free_cells: FreeList,
    unused_lists: [FreeList; 3],
    /// Records that were not published, by their sizes, linked by their second words.
    pub(super) free_records: [FreeList; LISTS],
    last_unused: [AtomicU64; 16],
}

const _: () = assert!(size_of::<Head>() as u64 == REGISTRY_HEAD && CLASSES <= LISTS);

/// Returns the head of a segment's registry, if it has one.
pub(super) fn head(mapping: &Mapping) -> Result<&Head, SegmentErrorKind> {
    if mapping.layout.series == 0 {
        return Err(SegmentErrorKind::NoRegistry);
    }
    let at = mapping.before_lanes(mapping.layout.registry_at());
    // SAFETY: a layout with series has `REGISTRY_HEAD` bytes for the head there, before the lanes,
    // at a multiple of 64. The mapping lives as long as the result. All fields are atomics, or
    // pairs that are accessed as such, so others may write any values.
    Ok(unsafe { &*(at as *const Head) })
}

/// Returns the index of a registry, whose length is a power of two.
#[inline]
pub(super) fn index(mapping: &Mapping) -> Result<&[AtomicU64], SegmentErrorKind> {
    let layout = &mapping.layout;
    let index = mapping.words(layout.registry_at() + REGISTRY_HEAD, layout.series_entries());
    index.ok_or(SegmentErrorKind::Damaged { field: "registry index" })
}

/// Returns the words of all cells.
pub(super) fn cell_words(mapping: &Mapping) -> Result<&[AtomicU64], SegmentErrorKind> {
    let words = mapping.words(mapping.layout.cell_words_at(), mapping.layout.cells());
    words.ok_or(SegmentErrorKind::Damaged { field: "registry index" })
}

/// Returns how many cells have been taken: never more than there are.
///
/// A caller that has acquired a record sees that the record's cell was taken.
#[inline]
pub(super) fn cells_used(mapping: &Mapping) -> u64 {
    // Relaxed: the exchange in `find_or_publish` has released the number with the record.
    let used = head(mapping).map_or(0, |head| head.cells_used.load(Relaxed));
    used.min(mapping.layout.cells())
}

/// Returns where the banks of a cell are, and those of the cells behind it.
///
/// `None` if the layout has no such cell. The caller ensures that the cells that it uses have
/// memory, and names none from [`Layout::cells`] on.
///
/// [`Layout::cells`]: crate::segment::file::layout::Layout::cells
#[inline]
pub(super) fn lanes(mapping: &Mapping, cell: u64) -> Option<Lanes> {
    if cell >= mapping.layout.cells() {
        return None;
    }
    let first = mapping.cells() + (CELL_BYTES * cell) as usize;
    let (stride, count) = (mapping.layout.lane_cell_bytes() as usize, mapping.layout.lanes as u32);
    // SAFETY: each of the layout's lanes has `CELL_BYTES` for each of its cells: two banks. The
    // first lane's cells begin at `mapping.cells()`, a multiple of a page, and the next lane's
    // `lane_cell_bytes` later. All of that lies in the mapping: `Layout::len`, which is the length
    // of the mapping, ends behind the last lane. The end mark is behind the last cell, because
    // `lane_cell_bytes` has a word for it. So no bank overlaps it. Callers keep the mapping as long
    // as they use the result: `SharedSeries` by its `Arc`, the others by a reference.
    Some(unsafe { Lanes::new(first as *const _, stride, count) })
}

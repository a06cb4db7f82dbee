//! Memory for families and series: a record, and a cell for each series.

use super::free_list::FreeList;
use super::head::{cell_words, cells_used, head};
use super::index::take_number;
use super::record::{FAMILY, class_of, link, link_of_free, mark_free};
use crate::segment::file::error::SegmentErrorKind;
use crate::segment::file::mapping::Mapping;
use crate::sys::atomic::Ordering::Relaxed;

/// Memory that nobody else uses, until its record is published.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    /// The offset of the record.
    pub(super) at: u64,
    /// The number of the size of the record.
    class: usize,
    /// The cell; any number if the record is that of a family.
    pub(super) cell: u64,
    kind: u64,
}

/// Takes memory for a record of `bytes`, and for a cell if the record is that of a series.
///
/// The caller has blocked signals, and publishes the record or calls [`give_back`] before it
/// unblocks them. If it is killed in between, the memory is lost.
pub(super) fn take_memory(
    mapping: &Mapping,
    bytes: u64,
    kind: u64,
) -> Result<Memory, SegmentErrorKind> {
    let cell = match kind {
        FAMILY => take_family(mapping)?,
        _ => take_cell(mapping)?,
    };
    let (class, bytes) = class_of(bytes);
    take_record(mapping, class, bytes)
        .map(|at| Memory { at, class, cell, kind })
        .inspect_err(|_| give_back_cell(mapping, cell, kind))
}

/// Gives memory back that was not published.
pub(super) fn give_back(mapping: &Mapping, memory: Memory) {
    let Memory { at, class, cell, kind } = memory;
    let lists = head(mapping).map(|head| &head.free_records);
    if let (Ok(lists), Ok(()), Ok(link)) = (lists, mark_free(mapping, at), link(mapping, at)) {
        lists[class].push(at, link);
    }
    give_back_cell(mapping, cell, kind);
}

fn give_back_cell(mapping: &Mapping, cell: u64, kind: u64) {
    let (Ok(head), Ok(words)) = (head(mapping), cell_words(mapping)) else { return };
    if kind == FAMILY {
        // Relaxed: only the number counts.
        head.families_used.fetch_sub(1, Relaxed);
    } else if let Some(word) = words.get(cell as usize) {
        // A free cell is listed by its number plus 1, because 0 ends the list.
        head.free_cells.push(cell + 1, word);
    }
}

/// Counts a family, of which there are at most as many as cells.
fn take_family(mapping: &Mapping) -> Result<u64, SegmentErrorKind> {
    let (used, most) = (&head(mapping)?.families_used, mapping.layout.cells());
    take_number(used, most, |_| Ok(()))?.ok_or(SegmentErrorKind::RegistryFull)
}

/// Takes a cell, whose counts are 0.
fn take_cell(mapping: &Mapping) -> Result<u64, SegmentErrorKind> {
    let (head, words) = (head(mapping)?, cell_words(mapping)?);
    let word = |item: u64| words.get(usize::try_from(item).ok()?.checked_sub(1)?);
    // Any process that can write to the file can have written any item there.
    let is_taken = |item: &u64| (1..=cells_used(mapping)).contains(item);
    if let Some(item) = head.free_cells.take(word).filter(is_taken) {
        return match mapping.ensure_cells(item) {
            Ok(()) => Ok(item - 1),
            Err(kind) => {
                head.free_cells.push(item, &words[item as usize - 1]);
                Err(kind)
            }
        };
    }
    let ensure = |count| mapping.ensure_cells(count);
    let taken = take_number(&head.cells_used, mapping.layout.cells(), ensure)?;
    taken.ok_or(SegmentErrorKind::RegistryFull)
}

/// Takes the bytes of a record, and returns their offset.
fn take_record(mapping: &Mapping, class: usize, bytes: u64) -> Result<u64, SegmentErrorKind> {
    let list = &head(mapping)?.free_records[class];
    if let Some(at) = take_free_record(mapping, list, bytes) {
        return Ok(at);
    }
    mapping.take_shared(bytes).map_err(|kind| match kind {
        SegmentErrorKind::Full => SegmentErrorKind::RegistryFull,
        other => other,
    })
}

fn take_free_record(mapping: &Mapping, list: &FreeList, bytes: u64) -> Option<u64> {
    list.take(|at| link_of_free(mapping, at, bytes))
}

//! A walk through the index of a registry that checks each entry, for `thiscpu segment`.

use super::head::{head, index, lanes};
use super::index::{at_of, entry_of, kind_of};
use super::insert::hash;
use super::record::{CELL, FAMILY, FAMILY_AT, FAMILY_TEXTS, Record, SERIES};
use crate::segment::file::error::SegmentErrorKind;
use crate::segment::file::mapping::Mapping;
use crate::sys::atomic::Ordering::{Acquire, Relaxed};

/// The most index entries before a name's own that a walk looks at.
const PROBES_MAX: u64 = 256;

/// A family or series, as an entry of the index leads to it.
pub(in crate::segment) struct Entry {
    /// The name of the family, or the values of the series.
    pub(in crate::segment) name: String,
    /// The offsets of the record's beginning and end.
    pub(in crate::segment) record: [u64; 2],
    /// The number of the cell of a series.
    pub(in crate::segment) cell: Option<u64>,
    /// Whether a search for the name comes to the entry.
    pub(in crate::segment) is_reachable: bool,
}

/// Calls `visit` with the number of each entry in use, until it returns false.
pub(in crate::segment) fn walk(
    mapping: &Mapping,
    mut visit: impl FnMut(u64, Result<Entry, SegmentErrorKind>) -> bool,
) -> Result<(), SegmentErrorKind> {
    for (number, entry) in index(mapping)?.iter().enumerate() {
        // Acquire: pairs with the exchange in `find_or_publish`.
        let found = entry.load(Acquire);
        if found != 0 && !visit(number as u64, read(mapping, number as u64, found)) {
            break;
        }
    }
    Ok(())
}

/// Returns how many cells were taken, which can be any number in a damaged file.
pub(in crate::segment) fn cells_used(mapping: &Mapping) -> u64 {
    // Relaxed: a number to be compared.
    head(mapping).map_or(0, |head| head.cells_used.load(Relaxed))
}

/// Reads and checks the record of an entry.
fn read(mapping: &Mapping, number: u64, entry: u64) -> Result<Entry, SegmentErrorKind> {
    let (at, kind) = (at_of(entry), kind_of(entry));
    if kind != FAMILY && kind != SERIES {
        return Err(SegmentErrorKind::Damaged { field: "registry entry" });
    }
    let record = Record::read(mapping, at, kind)?;
    let texts = record.texts(..)?;
    let mut cell = None;
    let (hash, name) = if kind == FAMILY {
        (hash(mapping, 0, &[&texts[0]]), texts[0].clone())
    } else {
        let family_at = record.word(FAMILY_AT);
        let family = Record::read(mapping, family_at, FAMILY)
            .map_err(|_| SegmentErrorKind::Damaged { field: "family of a series" })?;
        if family.count() != FAMILY_TEXTS + texts.len() {
            return Err(SegmentErrorKind::Damaged { field: "number of values" });
        }
        let values: Vec<&str> = texts.iter().map(|text| &**text).collect();
        cell = Some(record.word(CELL)).filter(|&cell| lanes(mapping, cell).is_some());
        cell.ok_or(SegmentErrorKind::Damaged { field: "cell of a series" })?;
        let name = format!("{}{values:?}", family.texts(..1)?.concat());
        (hash(mapping, family_at, &values), name)
    };
    let is_reachable = entry_of(kind, at, hash) == entry && has_no_gap(mapping, number, hash)?;
    Ok(Entry { name, record: [at, at + record.bytes()], cell, is_reachable })
}

/// Returns whether all entries are in use between a hash's first one and one of a number.
fn has_no_gap(mapping: &Mapping, number: u64, hash: u64) -> Result<bool, SegmentErrorKind> {
    let index = index(mapping)?;
    let mask = index.len() as u64 - 1;
    let steps = number.wrapping_sub(hash) & mask;
    Ok((1..=steps.min(PROBES_MAX)).all(|step| {
        // Relaxed: an entry that is in use stays so.
        index[(number.wrapping_sub(step) & mask) as usize].load(Relaxed) != 0
    }))
}

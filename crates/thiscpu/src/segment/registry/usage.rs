//! How much of a registry is in use.

use super::head::{head, index};
use super::index::kind_of;
use super::record::{FAMILY, SERIES};
use crate::segment::file::error::SegmentErrorKind;
use crate::segment::file::mapping::Mapping;
use crate::sys::atomic::Ordering::Relaxed;

/// How much of a registry is in use.
///
/// [`SharedRegistry::usage`](crate::SharedRegistry::usage) returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegistryUsage {
    /// How many series the registry was created for.
    pub capacity: u64,
    /// The number of series.
    ///
    /// It can exceed the capacity a little, if no process died in the middle of an insert.
    pub series: u64,
    /// The number of families.
    pub families: u64,
    /// How many inserts of families and series failed, because there was no room or memory.
    pub refused: u64,
}

/// Returns how much of a registry is in use.
pub(super) fn usage(mapping: &Mapping) -> Result<RegistryUsage, SegmentErrorKind> {
    let head = head(mapping)?;
    mapping.check_length()?;
    let (mut series, mut families) = (0, 0);
    for entry in index(mapping)? {
        // Relaxed: nothing is read through the entry.
        match kind_of(entry.load(Relaxed)) {
            SERIES => series += 1,
            FAMILY => families += 1,
            _ => {}
        }
    }
    // Relaxed: a number to be shown.
    let refused = head.refused.load(Relaxed);
    Ok(RegistryUsage { capacity: mapping.layout.series, series, families, refused })
}

//! Families and series.

use std::fmt;
use std::sync::Arc;

use super::head::{cells_used, head, lanes};
use super::insert::{find_series, insert_series};
use super::names::STRING_MAX;
use super::record::{CELL, SERIES_HEAD, damaged, words};
use crate::segment::file::error::{SegmentError, SegmentErrorKind};
use crate::segment::file::mapping::Mapping;
use crate::segment::lanes::cpu;
use crate::segment::lanes::sums::{self, Lanes};
use crate::sys::atomic::{AtomicU64, Ordering::Relaxed};

/// A family of counters in a [`SharedRegistry`]: a name, and its labels.
///
/// [`SharedRegistry::counter_family`] returns it.
///
/// [`SharedRegistry`]: crate::SharedRegistry
/// [`SharedRegistry::counter_family`]: crate::SharedRegistry::counter_family
#[derive(Clone)]
pub struct SharedFamily(pub(super) Handle);

/// Where a family is, and what it is called.
#[derive(Clone)]
pub(super) struct Handle {
    pub(super) segment: Arc<Mapping>,
    pub(super) at: u64,
    pub(super) name: Arc<str>,
    pub(super) labels: Arc<[String]>,
}

impl Handle {
    /// Checks the number and the lengths of values.
    fn check(&self, values: &[&str]) -> Result<(), SegmentErrorKind> {
        let (count, wanted) = (values.len(), self.labels.len());
        let is_long = |value: &&&str| value.len() > STRING_MAX;
        let reason = match values.iter().find(is_long) {
            Some(long) => {
                format!("a label's value has {} bytes; use {STRING_MAX} at most", long.len())
            }
            None if count != wanted => format!(
                "there are {count} values for the {wanted} labels of {}; give each label one, \
                 which may be empty",
                self.name
            ),
            None => return Ok(()),
        };
        Err(SegmentErrorKind::InvalidSeries { reason })
    }

    /// Returns the series at an offset.
    #[inline]
    pub(super) fn series_at(&self, at: u64) -> Result<SharedSeries, SegmentErrorKind> {
        let (lanes, epoch) = place_of(&self.segment, at)?;
        Ok(SharedSeries { lanes, epoch, segment: Arc::clone(&self.segment) })
    }

    #[inline]
    pub(super) fn find(&self, values: &[&str]) -> Result<Option<u64>, SegmentErrorKind> {
        if values.len() != self.labels.len() || values.iter().any(|value| value.len() > STRING_MAX)
        {
            self.check(values)?;
        }
        find_series(&self.segment, self.at, values)
    }
}

/// Returns the banks and the epoch of the series at an offset.
#[inline]
pub(super) fn place_of(
    mapping: &Mapping,
    at: u64,
) -> Result<(Lanes, *const AtomicU64), SegmentErrorKind> {
    // Relaxed: the load of the index acquired the record.
    let cell = words(mapping, at, SERIES_HEAD)?[CELL].load(Relaxed);
    if cell >= cells_used(mapping) {
        return Err(damaged());
    }
    let lanes = lanes(mapping, cell).ok_or_else(damaged)?;
    mapping.ensure_cells(cell + 1)?;
    Ok((lanes, &raw const head(mapping)?.epoch))
}

impl SharedFamily {
    /// Returns the series of some label values, and makes it if there is none.
    ///
    /// There is a value for each label, in the order of the names, with up to 64 KiB each. An empty
    /// value stands for no label. A series that exists is found by its hash, in a few cache lines.
    /// A new one takes 64 bytes or more of records, and 32 in each lane; see
    /// [`series`](crate::SegmentOptions::series) of the options. Allocates nothing on the heap
    /// unless it fails. Not for signal handlers; may be called after `fork`.
    /// Keep the result for series that are counted often: its [`add`](SharedSeries::add) looks
    /// nothing up.
    ///
    /// # Errors
    ///
    /// If there is another number of values, if one is too long, if the registry is full or
    /// damaged, if the segment is lost, or if the system has no memory. A registry that is full
    /// counts the series in [`refused`](crate::SharedRegistry::refused).
    #[inline]
    pub fn series(&self, values: &[&str]) -> Result<SharedSeries, SegmentError> {
        let find_or_insert = || {
            let at = match self.0.find(values)? {
                Some(at) => at,
                None => insert_series(&self.0.segment, self.0.at, values)?,
            };
            self.0.series_at(at)
        };
        find_or_insert().map_err(|kind| self.0.segment.error(kind))
    }

    /// Returns the series of some label values, or `None` if there is none.
    ///
    /// # Errors
    ///
    /// As [`series`](SharedFamily::series), but never because the registry is full.
    pub fn find(&self, values: &[&str]) -> Result<Option<SharedSeries>, SegmentError> {
        let find = || self.0.find(values)?.map(|at| self.0.series_at(at)).transpose();
        find().map_err(|kind| self.0.segment.error(kind))
    }

    /// Returns the name of the family, which ends in `_total`.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the names of the labels.
    pub fn label_names(&self) -> &[String] {
        &self.0.labels
    }
}

impl fmt::Debug for SharedFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("SharedFamily");
        debug.field("name", &self.name()).field("label_names", &self.label_names()).finish()
    }
}

/// A counter of a [`SharedFamily`], which is only added to.
///
/// A handle is a few words; clones lead to the same series, and keep the segment attached.
///
/// Adds never wait. A process that is killed at any instruction has made each of its adds or not.
/// The values of all series of a registry are read at one instant by
/// [`SharedRegistry::scrape`](crate::SharedRegistry::scrape).
///
/// ```
/// # fn main() -> Result<(), thiscpu::SegmentError> {
/// let segment = thiscpu::Segment::options().series(10).anonymous()?;
/// let bytes = segment.registry()?.counter_family("sent_bytes", "Bytes sent.", &[])?;
/// let bytes = bytes.series(&[])?;
/// bytes.add(1500);
/// assert_eq!(bytes.sum(), 1500);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SharedSeries {
    lanes: Lanes,
    epoch: *const AtomicU64,
    segment: Arc<Mapping>,
}

// SAFETY: the pointers lead into the mapping, which `segment` keeps, and everything there is
// accessed as atomics.
unsafe impl Send for SharedSeries {}
// SAFETY: all accesses through the pointers are atomic, and `segment` keeps the mapping.
unsafe impl Sync for SharedSeries {}

impl SharedSeries {
    #[inline(always)]
    fn epoch(&self) -> &AtomicU64 {
        // SAFETY: the word is in the mapping, which this value keeps.
        unsafe { &*self.epoch }
    }

    /// Adds `n`.
    ///
    /// More than 2^63 - 1 counts as that number. Costs about one uncontended atomic addition for
    /// amounts below 32,768, and about twice that for larger ones. May be called from signal
    /// handlers and after `fork`.
    #[inline]
    pub fn add(&self, n: u64) {
        let n = i64::try_from(n).unwrap_or(i64::MAX);
        self.lanes.add(0, self.epoch(), cpu::lane(self.lanes.len()), n);
    }

    /// Adds 1, as [`add`](SharedSeries::add) does.
    #[inline]
    pub fn inc(&self) {
        self.add(1);
    }

    /// Returns the exact value at one instant of the call; it wraps around at 2^64.
    ///
    /// Includes every add that happened before the call, in any process. If processes add to the
    /// series meanwhile, the call can make scrapes of the registry that run meanwhile start again.
    /// So read many series by a scrape. May be called from signal handlers and after `fork`.
    pub fn sum(&self) -> u64 {
        /// How often the value is read without a change of the epoch, which others would notice.
        const LOOKS: usize = 100;
        let mut before = self.lanes.count(0);
        for _ in 0..LOOKS {
            let now = self.lanes.count(0);
            // Counts only grow. So if two looks agree, nothing changed in between.
            match now {
                Some(value) if now == before => return value as u64,
                _ => before = now,
            }
        }
        let mut sum = [0];
        sums::sum(self.epoch(), || [Some(self.lanes), None], &mut sum);
        sum[0] as u64
    }
}

impl fmt::Debug for SharedSeries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("SharedSeries");
        debug.field("sum", &self.sum()).field("is_lost", &self.segment.is_lost()).finish()
    }
}

//! The values of all series at one instant.

use super::head::{cells_used, head, index, lanes};
use super::index::{at_of, kind_of};
use super::record::{FAMILY, FAMILY_AT, FAMILY_STRINGS, Record, SERIES, damaged};
use crate::segment::file::error::{SegmentError, SegmentErrorKind};
use crate::segment::file::mapping::Mapping;
use crate::segment::lanes::sums::{self, Lanes};
use crate::sys::atomic::Ordering::{Acquire, Relaxed};

/// How often a scrape is started again when other sums overtake it.
const ATTEMPTS_MAX: usize = 100;
/// The most damaged records that a scrape reports.
const DAMAGED_MAX: usize = 1000;

/// The values of all series of a registry, as they were at one instant.
///
/// [`SharedRegistry::scrape`] and [`RegistryView::scrape`] return it. It is a copy, and keeps no
/// segment attached.
///
/// [`RegistryView::scrape`]: crate::RegistryView::scrape
/// [`SharedRegistry::scrape`]: crate::SharedRegistry::scrape
#[derive(Clone, Debug)]
pub struct Scrape {
    families: Vec<Family>,
    series: Vec<Series>,
    /// The values of all labels, one after the other.
    values: String,
    /// Where in `values` each one ends.
    ends: Vec<usize>,
    damaged: Vec<SegmentError>,
    refused: u64,
    is_exact: bool,
}

#[derive(Clone, Debug)]
struct Family {
    at: u64,
    name: String,
    help: String,
    labels: Vec<String>,
    is_counter: bool,
}

/// A series while it is collected and read.
#[derive(Clone, Copy, Debug)]
struct Series {
    family: usize,
    /// The number of its first value in `ends`.
    first_value: usize,
    cell: u64,
    low: u64,
    high: u64,
}

/// A series in a [`Scrape`], and its value.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    scrape: &'a Scrape,
    series: &'a Series,
}

impl<'a> Sample<'a> {
    fn family(&self) -> &'a Family {
        &self.scrape.families[self.series.family]
    }

    /// Returns the name of the family, which ends in `_total`.
    pub fn name(&self) -> &'a str {
        &self.family().name
    }

    /// Returns the help text of the family.
    pub fn help(&self) -> &'a str {
        &self.family().help
    }

    /// Returns an iterator over the labels and their values.
    ///
    /// Leaves out labels with empty values, because for Prometheus they do not exist.
    pub fn labels(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let (scrape, first) = (self.scrape, self.series.first_value);
        let labels = self.family().labels.iter().enumerate();
        labels
            .map(move |(number, label)| (&**label, scrape.label_value(first + number)))
            .filter(|(_, value)| !value.is_empty())
    }

    /// Returns the value, if it is known exactly.
    pub fn value(&self) -> Option<u64> {
        (self.low() == self.high()).then_some(self.low())
    }

    /// Returns the lowest value that the series can have had at the instant of the scrape.
    pub fn low(&self) -> u64 {
        self.series.low
    }

    /// Returns the highest value that the series can have had at the instant of the scrape.
    pub fn high(&self) -> u64 {
        self.series.high
    }
}

impl Scrape {
    /// Returns an iterator over the series, those of one family one after the other.
    pub fn samples(&self) -> impl ExactSizeIterator<Item = Sample<'_>> {
        self.series.iter().map(|series| Sample { scrape: self, series })
    }

    /// Returns the series of an index, in the order of [`samples`](Scrape::samples).
    pub fn sample(&self, index: usize) -> Option<Sample<'_>> {
        self.series.get(index).map(|series| Sample { scrape: self, series })
    }

    /// Returns whether all values are exact, as they were at one instant.
    ///
    /// Otherwise all bounds hold at one instant.
    pub fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// Returns what is damaged: at most a thousand families and series, which are left out.
    pub fn damaged(&self) -> &[SegmentError] {
        &self.damaged
    }

    /// Returns how many inserts failed until now, because there was no room or memory.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns a value by its number in `ends`.
    fn label_value(&self, number: usize) -> &str {
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.values[start..self.ends[number]]
    }

    /// Scrapes a registry that this process can write, and so can seal.
    pub(super) fn exact(mapping: &Mapping) -> Result<Scrape, SegmentErrorKind> {
        let mut scrape = Scrape::collect(mapping)?;
        mapping.ensure_cells(scrape.series.iter().map(|it| it.cell + 1).max().unwrap_or(0))?;
        let Some(lanes) = lanes(mapping, 0) else { return scrape.finish(mapping) };
        let mut values = vec![0; scrape.series.len()];
        let epoch = &head(mapping)?.epoch;
        // Cells of other types may hold anything, so a scrape seals only those of counters.
        let cell = |index: usize| scrape.series[index].cell as usize;
        if sums::sum_within(ATTEMPTS_MAX, epoch, lanes, cell, &mut values) {
            for (series, value) in scrape.series.iter_mut().zip(values) {
                (series.low, series.high) = (value as u64, value as u64);
            }
        } else {
            scrape.bound(lanes);
        }
        scrape.finish(mapping)
    }

    /// Scrapes a registry that this process may only read.
    pub(super) fn bounds(mapping: &Mapping) -> Result<Scrape, SegmentErrorKind> {
        let mut scrape = Scrape::collect(mapping)?;
        if let Some(lanes) = lanes(mapping, 0) {
            scrape.bound(lanes);
        }
        scrape.finish(mapping)
    }

    /// Puts the series of one family one after the other, if the segment is not lost.
    fn finish(mut self, mapping: &Mapping) -> Result<Scrape, SegmentErrorKind> {
        mapping.check_length()?;
        // After the values were read: cells lie about as their series' records do.
        self.series.sort_by_key(|series| series.family);
        Ok(self)
    }

    /// Reads bounds of all series, which hold between the first looks and the second ones.
    fn bound(&mut self, lanes: Lanes) {
        let all = || self.series.iter().map(|series| lanes.count(series.cell as usize));
        let first: Vec<_> = all().collect();
        let second: Vec<_> = all().collect();
        for ((series, first), second) in self.series.iter_mut().zip(first).zip(second) {
            // Counts only grow until they exceed what an `i64` holds. Then they look negative.
            (series.low, series.high) = match (first, second) {
                (Some(low @ 0..), Some(high)) if low <= high => (low as u64, high as u64),
                _ => (0, u64::MAX),
            };
        }
        self.is_exact = self.series.iter().all(|series| series.low == series.high);
    }

    /// Collects the names of all series.
    fn collect(mapping: &Mapping) -> Result<Scrape, SegmentErrorKind> {
        let head = head(mapping)?;
        mapping.check_end()?;
        // Acquire: pairs with the exchange in `find_or_publish`.
        let entries = index(mapping)?.iter().map(|entry| entry.load(Acquire));
        let mut entries: Vec<_> = entries.filter(|&entry| entry != 0).collect();
        // In the order of the records, which lie close together.
        entries.sort_unstable_by_key(|&entry| at_of(entry));
        let mut scrape = Scrape {
            families: Vec::new(),
            series: Vec::new(),
            values: String::new(),
            ends: Vec::new(),
            damaged: Vec::new(),
            // Relaxed: a number to be shown.
            refused: head.refused.load(Relaxed),
            is_exact: true,
        };
        let mut scratch = Vec::new();
        // Families first, because a series names its family.
        for kind in [FAMILY, SERIES] {
            let mut end = 0;
            for &entry in entries.iter().filter(|&&entry| kind_of(entry) == kind) {
                let at = at_of(entry);
                // Records do not overlap, so no file can make this copy many times its size.
                let read = match at < end {
                    true => Err(damaged()),
                    false if kind == FAMILY => scrape.add_family(mapping, at),
                    false => scrape.add_series(mapping, at, &mut scratch),
                };
                scrape.note(mapping, read.map(|behind| end = behind))?;
            }
        }
        let others = entries.iter().filter(|&&it| !matches!(kind_of(it), FAMILY | SERIES));
        others.into_iter().try_for_each(|_| scrape.note(mapping, Err(damaged())))?;
        Ok(scrape)
    }

    /// Notes a damaged record. Errors of the system end the scrape.
    fn note(
        &mut self,
        mapping: &Mapping,
        read: Result<(), SegmentErrorKind>,
    ) -> Result<(), SegmentErrorKind> {
        match read {
            Err(kind @ SegmentErrorKind::Damaged { .. }) => {
                if self.damaged.len() < DAMAGED_MAX {
                    self.damaged.push(mapping.error(kind));
                }
                Ok(())
            }
            result => result,
        }
    }

    /// Adds the family at an offset, and returns where its record ends.
    fn add_family(&mut self, mapping: &Mapping, at: u64) -> Result<u64, SegmentErrorKind> {
        let record = Record::read(mapping, at, FAMILY)?;
        // A later version can have other types. Their series are no counters, and are left out.
        let is_counter = record.is_of_counters();
        // Callers that print a scrape rely on its names.
        let mut strings = record.family_strings()?.into_iter();
        let [name, help] = [(); FAMILY_STRINGS].map(|()| strings.next().unwrap_or_default());
        let labels = strings.collect();
        self.families.push(Family { at, name, help, labels, is_counter });
        Ok(at + record.bytes())
    }

    /// Adds the series at an offset, and returns where its record ends.
    fn add_series(
        &mut self,
        mapping: &Mapping,
        at: u64,
        scratch: &mut Vec<u8>,
    ) -> Result<u64, SegmentErrorKind> {
        let record = Record::read(mapping, at, SERIES)?;
        let family_at = record.word(FAMILY_AT);
        // Families are in the order of their offsets.
        let family = self.families.binary_search_by_key(&family_at, |family| family.at);
        let family =
            family.map_err(|_| SegmentErrorKind::Damaged { field: "family of a series" })?;
        if self.families[family].labels.len() != record.count() {
            return Err(damaged());
        }
        if !self.families[family].is_counter {
            return Ok(at + record.bytes());
        }
        // The index was read before the number of cells, so each sound series has one of these.
        let is_used = |&cell: &u64| cell < cells_used(mapping);
        let cell = record.cell().filter(is_used).ok_or_else(damaged)?;
        let (length, first_value) = (self.values.len(), self.ends.len());
        let copied = record.for_each_string(scratch, |value| {
            self.values.push_str(value);
            self.ends.push(self.values.len());
        });
        if let Err(kind) = copied {
            self.values.truncate(length);
            self.ends.truncate(first_value);
            return Err(kind);
        }
        self.series.push(Series { family, first_value, cell, low: 0, high: 0 });
        Ok(at + record.bytes())
    }
}

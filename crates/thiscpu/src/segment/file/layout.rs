//! The places of everything in a segment, and its header.
//!
//! ```text
//! header        0        who made it, and its sizes; never changes once published
//!               128      the parts in use
//! index         4096     offsets of records, by the hash of their names
//! participants           slots of processes that use budgets
//! waiters                threads and tasks that wait for units
//! registry               its head, its index, and a word for each cell: only with series
//! shared                 records, one after the other
//! lanes                  for each lane, the banks of counters and the pairs of budgets
//! cells                  for each lane, the banks of series; the file's last word is the end mark
//! ```
//!
//! A process copies the sizes once, and checks them against the length of the file. Whatever others
//! write later, it accesses nothing outside its mapping.

use crate::sys::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::sys::cpu_set::CPUS_MAX;

use super::error::SegmentErrorKind;
use crate::segment::budget::{self, SLOTS_MAX, Waiter};

const MAGIC: u64 = u64::from_le_bytes(*b"thiscpu\x1a");
/// The number of this layout and of the protocols on it.
pub(in crate::segment) const FORMAT: u64 = 1;
/// Sizes of areas are multiples of this: the largest size of a page.
pub(in crate::segment) const PAGE: u64 = 64 << 10;
/// Where the index begins.
const INDEX_AT: u64 = 4096;

pub(in crate::segment) const LANES_MAX: u64 = CPUS_MAX as u64;
const _: () = assert!(LANES_MAX <= budget::LANES_MAX as u64, "budgets can name all lanes");
/// The smallest and the largest number of entries in the index.
const ENTRIES_MIN: u64 = 512;
const ENTRIES_MAX: u64 = 1 << 24;
pub(in crate::segment) const BYTES_MAX: u64 = 1 << 40;
pub(in crate::segment) const PARTICIPANTS_MAX: u64 = SLOTS_MAX as u64;
/// Numbers of participants are multiples of this.
const PARTICIPANTS_UNIT: u64 = 8;
/// How many waiters there are for each participant.
const WAITERS_EACH: u64 = 8;
/// The size of a participant's slot, in bytes.
pub(in crate::segment) const SLOT_BYTES: u64 = 64;
const WAITER_BYTES: u64 = size_of::<Waiter>() as u64;

/// The feature of segments with a registry, which older versions refuse.
const SERIES: u64 = 1;
/// The most series that a segment can be created for.
pub(in crate::segment) const SERIES_MAX: u64 = 1 << 22;
/// Cells beyond the number of series. Each death in an insert can cost one.
const SPARE_CELLS: u64 = 64;
/// The bytes of a registry's head, before its index.
pub(in crate::segment) const REGISTRY_HEAD: u64 = 1024;
/// The bytes of a series in each lane.
pub(in crate::segment) const CELL_BYTES: u64 = 32;
/// The bytes of records that a new segment has for each cell.
const SERIES_RECORD_BYTES: u64 = 128;
/// Where records end at most: entries of the registry's index hold offsets below this.
pub(in crate::segment) const RECORDS_END_MAX: u64 = 1 << 40;

/// The start of a segment.
#[repr(C)]
pub(in crate::segment) struct Header {
    /// Published last.
    magic: AtomicU64,
    format: AtomicU64,
    /// Features that a process must know.
    features: AtomicU64,
    nonce: AtomicU64,
    lanes: AtomicU64,
    index_entries: AtomicU64,
    shared_bytes: AtomicU64,
    lane_bytes: AtomicU64,
    participants: AtomicU64,
    waiters: AtomicU64,
    series: AtomicU64,
    /// Zeros.
    unused: [AtomicU64; 5],
    /// Bytes of the shared area that records have, from its start. On a cache line of its own.
    pub(in crate::segment) shared_used: AtomicU64,
    /// Bytes of each lane that counters have, from its start.
    pub(in crate::segment) lane_used: AtomicU64,
}

/// The sizes of a segment, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::segment) struct Layout {
    pub(in crate::segment) lanes: u64,
    /// A power of two.
    pub(in crate::segment) index_entries: u64,
    pub(in crate::segment) shared_bytes: u64,
    pub(in crate::segment) lane_bytes: u64,
    /// How many processes can use budgets at once.
    pub(in crate::segment) participants: u64,
    /// How many of their threads and tasks can wait at once.
    pub(in crate::segment) waiters: u64,
    /// How many series the registry has room for; 0 without a registry.
    pub(in crate::segment) series: u64,
}

impl Layout {
    /// Lays out the smallest segment with `lanes` lanes and at least `participants` participants.
    pub(in crate::segment) fn smallest(lanes: u64, participants: u64) -> Layout {
        let participants = participants.next_multiple_of(PARTICIPANTS_UNIT);
        Layout {
            lanes,
            index_entries: ENTRIES_MIN,
            shared_bytes: PAGE,
            lane_bytes: PAGE,
            participants,
            waiters: participants * WAITERS_EACH,
            series: 0,
        }
    }

    /// Lays out a new segment of at most `max_bytes`, which holds at least the smallest one.
    ///
    /// All areas have room for about as many objects.
    pub(in crate::segment) fn with_max_bytes(smallest: Layout, max_bytes: u64) -> Layout {
        let lanes = smallest.lanes;
        // A record, an entry or two of the index, and banks for one sign or both in each lane.
        let objects = max_bytes / (80 + 16 + 48 * lanes);
        let pages = |bytes: u64| (bytes / PAGE).max(1) * PAGE;
        let mut layout = Layout {
            index_entries: objects.next_power_of_two().clamp(ENTRIES_MIN, ENTRIES_MAX),
            shared_bytes: pages(80 * objects),
            lane_bytes: pages(48 * objects),
            ..smallest
        };
        // Rounding must not exceed the limit.
        let too_large = |layout: &Layout| layout.len() > max_bytes;
        while too_large(&layout) && layout.index_entries > ENTRIES_MIN {
            layout.index_entries /= 2;
        }
        while too_large(&layout) && layout.shared_bytes > PAGE {
            layout.shared_bytes -= PAGE;
        }
        while too_large(&layout) && layout.lane_bytes > PAGE {
            layout.lane_bytes -= PAGE;
        }
        layout
    }

    /// Adds a registry with room for some series. Its areas come on top of all others.
    pub(in crate::segment) fn with_series(self, series: u64) -> Layout {
        let layout = Layout { series, ..self };
        let records = (SERIES_RECORD_BYTES * layout.cells()).next_multiple_of(PAGE);
        Layout { shared_bytes: self.shared_bytes + records, ..layout }
    }

    pub(in crate::segment) const fn index_at(&self) -> u64 {
        INDEX_AT
    }

    /// Returns where the slots of participants begin.
    pub(in crate::segment) fn participants_at(&self) -> u64 {
        INDEX_AT + 8 * self.index_entries
    }

    /// Returns where the waiters begin.
    pub(in crate::segment) fn waiters_at(&self) -> u64 {
        self.participants_at() + SLOT_BYTES * self.participants
    }

    /// Returns where the head of the registry begins, if there is one.
    pub(in crate::segment) fn registry_at(&self) -> u64 {
        (self.waiters_at() + WAITER_BYTES * self.waiters).next_multiple_of(64)
    }

    /// Returns the number of cells in each lane, which bounds the numbers of series and families.
    pub(in crate::segment) fn cells(&self) -> u64 {
        if self.series == 0 { 0 } else { self.series + SPARE_CELLS }
    }

    /// Returns the number of entries in the index of the registry, a power of two.
    ///
    /// At most two thirds of them are in use, even if each series has a family of its own.
    pub(in crate::segment) fn series_entries(&self) -> u64 {
        if self.series == 0 { 0 } else { (3 * self.cells()).next_power_of_two() }
    }

    /// Returns where the words of cells begin, one for each.
    pub(in crate::segment) fn cell_words_at(&self) -> u64 {
        let head = if self.series == 0 { 0 } else { REGISTRY_HEAD };
        self.registry_at() + head + 8 * self.series_entries()
    }

    /// Returns where the shared area begins. Nothing that it holds is at 0.
    pub(in crate::segment) fn shared_at(&self) -> u64 {
        (self.cell_words_at() + 8 * self.cells()).next_multiple_of(PAGE)
    }

    pub(in crate::segment) fn lanes_at(&self) -> u64 {
        self.shared_at() + self.shared_bytes
    }

    /// Returns where the cells of series begin.
    pub(in crate::segment) fn cells_at(&self) -> u64 {
        self.lanes_at() + self.lanes * self.lane_bytes
    }

    /// Returns the bytes that the cells of a lane have, and the end mark behind the last of them.
    pub(in crate::segment) fn lane_cell_bytes(&self) -> u64 {
        match self.cells() {
            0 => 0,
            cells => (CELL_BYTES * cells + 8).next_multiple_of(PAGE),
        }
    }

    /// Returns the length of the file, in bytes.
    pub(in crate::segment) fn len(&self) -> u64 {
        self.cells_at() + self.lanes * self.lane_cell_bytes()
    }

    /// Returns an error that names a size that no segment has.
    pub(in crate::segment) fn check(&self) -> Result<(), SegmentErrorKind> {
        let is_area =
            |bytes: u64| (PAGE..=BYTES_MAX).contains(&bytes) && bytes.is_multiple_of(PAGE);
        let entries = self.index_entries;
        let damaged = |field| Err(SegmentErrorKind::Damaged { field });
        if !(1..=LANES_MAX).contains(&self.lanes) {
            return damaged("number of lanes");
        }
        if !entries.is_power_of_two() || !(ENTRIES_MIN..=ENTRIES_MAX).contains(&entries) {
            return damaged("index size");
        }
        if !is_area(self.shared_bytes) || !is_area(self.lane_bytes) {
            return damaged("area size");
        }
        let is_count = |count: u64, unit: u64| {
            (unit..=unit * PARTICIPANTS_MAX).contains(&count) && count.is_multiple_of(unit)
        };
        if self.participants > PARTICIPANTS_MAX || !is_count(self.participants, PARTICIPANTS_UNIT) {
            return damaged("number of participants");
        }
        if !is_count(self.waiters, PARTICIPANTS_UNIT * WAITERS_EACH) {
            return damaged("number of waiters");
        }
        if self.series > SERIES_MAX {
            return damaged("number of series");
        }
        if self.series != 0 && self.lanes_at() > RECORDS_END_MAX {
            return damaged("area size");
        }
        Ok(())
    }
}

impl Header {
    /// Returns the header that the first bytes of a file are.
    pub(in crate::segment) fn from_words(words: [u64; size_of::<Header>() / 8]) -> Header {
        let [magic, format, features, nonce, lanes, entries, shared, lane, rest @ ..] =
            words.map(AtomicU64::new);
        let [participants, waiters, series, u0, u1, u2, u3, u4, shared_used, lane_used] = rest;
        Header {
            magic,
            format,
            features,
            nonce,
            lanes,
            index_entries: entries,
            shared_bytes: shared,
            lane_bytes: lane,
            participants,
            waiters,
            series,
            unused: [u0, u1, u2, u3, u4],
            shared_used,
            lane_used,
        }
    }

    /// Writes the sizes of a new segment, and then publishes it.
    pub(in crate::segment) fn publish(&self, layout: &Layout, nonce: u64) {
        // Relaxed: the store of `magic` releases them.
        self.format.store(FORMAT, Relaxed);
        self.nonce.store(nonce, Relaxed);
        self.lanes.store(layout.lanes, Relaxed);
        self.index_entries.store(layout.index_entries, Relaxed);
        self.shared_bytes.store(layout.shared_bytes, Relaxed);
        self.lane_bytes.store(layout.lane_bytes, Relaxed);
        self.participants.store(layout.participants, Relaxed);
        self.waiters.store(layout.waiters, Relaxed);
        self.series.store(layout.series, Relaxed);
        self.features.store(if layout.series == 0 { 0 } else { SERIES }, Relaxed);
        // Release: pairs with the Acquire in `check`.
        self.magic.store(MAGIC, Release);
    }

    /// Returns a number that other segments do not have.
    pub(in crate::segment) fn nonce(&self) -> u64 {
        // Relaxed: the Acquire in `check` came before.
        self.nonce.load(Relaxed)
    }

    /// Returns the sizes of a segment in a file of `len` bytes.
    pub(in crate::segment) fn check(&self, len: u64) -> Result<Layout, SegmentErrorKind> {
        // Acquire: pairs with the Release in `publish`.
        match self.magic.load(Acquire) {
            MAGIC => {}
            magic if magic == MAGIC.swap_bytes() => return Err(SegmentErrorKind::ForeignByteOrder),
            _ => return Err(SegmentErrorKind::NotASegment),
        }
        // Relaxed: the load above acquires them.
        let found = self.format.load(Relaxed);
        if found != FORMAT {
            return Err(SegmentErrorKind::OtherFormat { found, known: FORMAT });
        }
        let features = self.features.load(Relaxed);
        let unknown = features & !SERIES;
        if unknown != 0 {
            return Err(SegmentErrorKind::UnknownFeatures { unknown });
        }
        let series = self.series.load(Relaxed);
        if (series != 0) != (features & SERIES != 0) {
            return Err(SegmentErrorKind::Damaged { field: "number of series" });
        }
        let layout = Layout {
            lanes: self.lanes.load(Relaxed),
            index_entries: self.index_entries.load(Relaxed),
            shared_bytes: self.shared_bytes.load(Relaxed),
            lane_bytes: self.lane_bytes.load(Relaxed),
            participants: self.participants.load(Relaxed),
            waiters: self.waiters.load(Relaxed),
            series,
        };
        layout.check()?;
        match layout.len() == len {
            true => Ok(layout),
            false => Err(SegmentErrorKind::WrongLength { expected: layout.len(), found: len }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_has_room_for_a_family_with_each_series() {
        for series in [1, 64, 1000, 10_000, 87_317, 87_318, SERIES_MAX] {
            let layout = Layout::smallest(1, 8).with_series(series);
            let most = 2 * layout.cells();
            assert!(3 * most <= 2 * layout.series_entries(), "{series}");
            assert!(layout.shared_bytes >= PAGE + SERIES_RECORD_BYTES * layout.cells());
        }
    }

    #[test]
    fn records_lie_where_entries_of_a_registry_can_lead() {
        let layout = Layout { shared_bytes: BYTES_MAX, ..Layout::smallest(1, 8) };
        assert_eq!(layout.check(), Ok(()));
        let damaged = Err(SegmentErrorKind::Damaged { field: "area size" });
        assert_eq!(Layout { series: 1, ..layout }.check(), damaged);
        let below = Layout { series: 1, shared_bytes: BYTES_MAX - (1 << 20), ..layout };
        assert_eq!(below.check(), Ok(()));
    }
}

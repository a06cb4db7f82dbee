//! The objects of a segment, in the order of its index.
//!
//! Any process that can write to the file may have damaged it. So each field of a record is checked
//! before it is used, and a damaged record ends only its own step.

use super::budgets;
use super::directory::{HEAD, KIND, Kind, LANE_AT, NAME_LEN, NAME_MAX, OWN, is_name};
use super::error::{SegmentError, SegmentErrorKind};
use super::layout::Layout;
use super::mapping::Mapping;
use super::place::lane_bytes;
use crate::sys::atomic::Ordering::{Acquire, Relaxed};

/// An object in a segment, which [`Objects`] lists.
#[derive(Clone, Debug)]
pub struct SegmentObject {
    name: String,
    kind: ObjectKind,
    /// The offsets of the record's beginning and end.
    pub(in crate::segment) record: [u64; 2],
    /// The offset of its bytes in each lane.
    pub(in crate::segment) lane_at: u64,
    /// The words that belong to the object itself.
    pub(in crate::segment) own: [u64; 2],
}

/// The kind of an object in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ObjectKind {
    /// A [`SharedCounter`](crate::SharedCounter).
    Counter,
    /// This number of [`SharedCounters`](crate::SharedCounters).
    Counters(u32),
    /// A [`SharedBudget`](crate::SharedBudget).
    Budget,
    /// A kind that this version does not know.
    Unknown {
        /// The number of the kind.
        number: u32,
        /// How many of it there are side by side.
        count: u32,
    },
}

impl SegmentObject {
    /// Returns the object's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the object's kind.
    pub fn kind(&self) -> ObjectKind {
        self.kind
    }
}

impl ObjectKind {
    /// Returns the kind of a record, if this library writes such ones.
    fn new(kind: Kind) -> Option<ObjectKind> {
        let Kind { number, count } = kind;
        match number {
            0 => None,
            Kind::COUNTERS if !(1..=Kind::COUNTERS_MAX).contains(&count) => None,
            Kind::COUNTERS if count == 1 => Some(ObjectKind::Counter),
            Kind::COUNTERS => Some(ObjectKind::Counters(count)),
            _ if kind == Kind::BUDGET => Some(ObjectKind::Budget),
            number if number == Kind::BUDGET.number => None,
            _ => Some(ObjectKind::Unknown { number, count }),
        }
    }

    /// Returns the bytes that an object takes in each lane of a segment.
    ///
    /// Negative amounts take as many again.
    pub(in crate::segment) fn lane_bytes(self, layout: &Layout) -> Option<u64> {
        match self {
            ObjectKind::Counter => Some(lane_bytes(1)),
            ObjectKind::Counters(count) => Some(lane_bytes(count)),
            ObjectKind::Budget => Some(budgets::lane_bytes(layout)),
            ObjectKind::Unknown { .. } => None,
        }
    }
}

/// An iterator over the objects of a segment.
///
/// [`Segment::objects`](crate::Segment::objects) and
/// [`SegmentView::objects`](crate::SegmentView::objects) return it. It looks at each entry of the
/// index once, and never twice at one. An object that another process makes meanwhile may be
/// missing. A damaged record is an error of kind [`SegmentErrorKind::Damaged`], after which the
/// iterator goes on with the next record.
#[derive(Clone, Debug)]
pub struct Objects<'a> {
    mapping: &'a Mapping,
    /// The number of the next entry in the index.
    entry: u64,
}

impl<'a> Objects<'a> {
    pub(in crate::segment) fn new(mapping: &'a Mapping) -> Objects<'a> {
        Objects { mapping, entry: 0 }
    }

    /// Returns the next entry that is in use: its number, and the object.
    pub(in crate::segment) fn next_entry(
        &mut self,
    ) -> Option<(u64, Result<SegmentObject, SegmentErrorKind>)> {
        let layout = &self.mapping.layout;
        let index = self.mapping.words(layout.index_at(), layout.index_entries)?;
        if self.entry == 0
            && let Err(lost) = self.mapping.check_length()
        {
            self.entry = layout.index_entries;
            return Some((0, Err(lost)));
        }
        loop {
            let number = self.entry;
            let entry = index.get(number as usize)?;
            self.entry += 1;
            // Acquire: pairs with the exchange in `directory::find_or_make`; a record whose offset
            // is seen is written.
            match entry.load(Acquire) {
                0 => {}
                at => return Some((number, read(self.mapping, at))),
            }
        }
    }
}

impl Iterator for Objects<'_> {
    type Item = Result<SegmentObject, SegmentError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (_, object) = self.next_entry()?;
        Some(object.map_err(|kind| self.mapping.error(kind)))
    }
}

/// Reads and checks the record at an offset.
fn read(mapping: &Mapping, at: u64) -> Result<SegmentObject, SegmentErrorKind> {
    let layout = &mapping.layout;
    let damaged = |field| SegmentErrorKind::Damaged { field };
    let is_inside = at >= layout.shared_at() && at < layout.lanes_at() - 8 * HEAD;
    if !is_inside || !at.is_multiple_of(8) {
        return Err(damaged("index entry"));
    }
    let words = |count: u64| {
        let end = at + 8 * count;
        if end > layout.lanes_at() {
            return Err(damaged("record"));
        }
        mapping.ensure_shared(end - layout.shared_at())?;
        mapping.words(at, count).ok_or(damaged("record"))
    };
    let head = words(HEAD)?;
    // Relaxed: the load of the index acquired what never changes again.
    let len = head[NAME_LEN].load(Relaxed);
    if !(1..=NAME_MAX as u64).contains(&len) {
        return Err(damaged("object name"));
    }
    let length = HEAD + len.div_ceil(8);
    let record = words(length)?;
    // Relaxed, both: as above. The object's own words change at any time.
    let load = |word: usize| record[word].load(Relaxed);
    let name = record[HEAD as usize..].iter().flat_map(|word| word.load(Relaxed).to_le_bytes());
    let (mut name, len) = (name.collect::<Vec<u8>>(), len as usize);
    let has_padding = name[len..].iter().all(|&byte| byte == 0);
    name.truncate(len);
    let name = String::from_utf8(name).ok().filter(|name| has_padding && is_name(name));
    let name = name.ok_or(damaged("object name"))?;
    let kind = ObjectKind::new(Kind::from_word(load(KIND))).ok_or(damaged("object kind"))?;
    let lane_at = load(LANE_AT);
    // Of other kinds this version does not know how many bytes there are.
    if mapping.in_lanes(lane_at, kind.lane_bytes(layout).unwrap_or(0)).is_none() {
        return Err(damaged("place in the lanes"));
    }
    let own = [load(OWN), load(OWN + 1)];
    Ok(SegmentObject { name, kind, record: [at, at + 8 * length], lane_at, own })
}

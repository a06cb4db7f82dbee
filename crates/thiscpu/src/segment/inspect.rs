//! The contents of a segment's file, and whether they fit together, for `thiscpu segment`.

use std::collections::BTreeMap;

use super::file::budgets::RECORD_BYTES;
use super::file::directory::hash;
use super::file::error::{SegmentError, SegmentErrorKind};
use super::file::layout::{FORMAT, Layout};
use super::file::mapping::Mapping;
use super::file::objects::{ObjectKind, Objects, SegmentObject};
use super::file::place::{IN_USE, MIXED};
use super::registry::check::Part;
use super::registry::{self, RegistryUsage};
use super::view::SegmentView;
use crate::sys::atomic::Ordering::Relaxed;

/// The most faults that a check reports, so that it has an end on any file.
const FAULTS_MAX: usize = 1000;
/// The most index entries before an object's own that a check looks at.
const PROBES_MAX: u64 = 256;

/// The sizes of a segment, and how much of each area is in use.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// The number of the format.
    pub format: u64,
    /// The number of lanes.
    pub lanes: u64,
    /// The number of entries in the index.
    pub index_entries: u64,
    /// The bytes of the area of records.
    pub record_bytes: u64,
    /// Those that are in use.
    pub record_bytes_used: u64,
    /// The bytes of each lane.
    pub lane_bytes: u64,
    /// Those that are in use.
    pub lane_bytes_used: u64,
    /// The use of the registry, if there is one.
    pub registry: Option<RegistryUsage>,
}

/// Something in a segment that this library never writes.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The part of the segment.
    pub part: String,
    /// The fault there.
    pub fault: String,
}

/// The result of [`check`].
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// All faults, or the first thousand.
    pub faults: Vec<Fault>,
    /// The number of objects without a fault in their record.
    pub objects: usize,
    /// Bytes of the records, and of each lane, that belong to no object.
    ///
    /// A process that ended while it made an object has left them. Others lie before a budget,
    /// which begins at a cache line. Unknown if there are faults, or objects of a kind that this
    /// version does not know.
    pub unused_bytes: Option<[u64; 2]>,
}

/// Returns the sizes of a segment.
pub fn usage(view: &SegmentView) -> Usage {
    let (layout, header) = (view.mapping().layout, view.mapping().header());
    Usage {
        format: FORMAT,
        lanes: layout.lanes,
        index_entries: layout.index_entries,
        record_bytes: layout.shared_bytes,
        // Relaxed, both: numbers to be shown.
        record_bytes_used: header.shared_used.load(Relaxed),
        lane_bytes: layout.lane_bytes,
        lane_bytes_used: header.lane_used.load(Relaxed),
        registry: view.registry().and_then(|registry| registry.usage()).ok(),
    }
}

/// A range of bytes, and the object that it belongs to.
struct Range {
    at: u64,
    end: u64,
    of: String,
}

impl Checked {
    fn add(&mut self, part: impl Into<String>, fault: impl Into<String>) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(Fault { part: part.into(), fault: fault.into() });
        }
    }
}

/// Checks all records of a segment, and that no two of them share bytes.
///
/// Other processes may use the segment meanwhile.
///
/// # Errors
///
/// Never if the segment is damaged: that is a fault.
pub fn check(view: &SegmentView) -> Result<Checked, SegmentError> {
    let mapping = view.mapping();
    let mut checked = Checked::default();
    let records = records(mapping, &mut checked)?;
    let in_registry = check_registry(mapping, &mut checked);
    // After the records: an object takes its bytes before its record is published.
    let usage = usage(view);
    for (part, used, bytes) in [
        ("area of records", usage.record_bytes_used, usage.record_bytes),
        ("lanes", usage.lane_bytes_used, usage.lane_bytes),
    ] {
        if used > bytes {
            checked.add(part, format!("{used} bytes are in use of {bytes}"));
        }
    }
    let shared_end = mapping.layout.shared_at().saturating_add(usage.record_bytes_used);
    let mut in_records: Vec<_> = records.values().flat_map(record_ranges).collect();
    in_records.extend(in_registry);
    find_overlaps(&mut checked, "record", &mut in_records, shared_end);
    let mut in_lanes = Vec::new();
    for object in records.values() {
        add_lane_ranges(&mut checked, object, &mapping.layout, &mut in_lanes);
    }
    find_overlaps(&mut checked, "place in the lanes", &mut in_lanes, usage.lane_bytes_used);
    find_doubled_names(&mut checked, &records);
    checked.objects = records.len();
    let is_known = |object: &SegmentObject| object.kind().lane_bytes(&mapping.layout).is_some();
    let all_known = records.values().all(is_known);
    checked.unused_bytes = (checked.faults.is_empty() && all_known).then(|| {
        let bytes = |ranges: &[Range], unit: u64| -> u64 {
            ranges.iter().map(|range| (range.end - range.at).next_multiple_of(unit)).sum()
        };
        [
            usage.record_bytes_used.saturating_sub(bytes(&in_records, 64)),
            usage.lane_bytes_used.saturating_sub(bytes(&in_lanes, 32)),
        ]
    });
    Ok(checked)
}

/// Returns the records without faults by their offsets.
fn records(
    mapping: &Mapping,
    checked: &mut Checked,
) -> Result<BTreeMap<u64, SegmentObject>, SegmentError> {
    let mut records = BTreeMap::new();
    let mut objects = Objects::new(mapping);
    while let Some((number, object)) = objects.next_entry() {
        let entry = format!("index entry {number}");
        match object {
            Ok(object) => {
                if !is_reachable(mapping, number, object.name()) {
                    checked.add(entry.clone(), format!("no search finds {:?}", object.name()));
                }
                if let Some(other) = records.insert(object.record[0], object) {
                    checked.add(entry, format!("another entry leads to {:?} too", other.name()));
                }
            }
            Err(SegmentErrorKind::Damaged { field }) => {
                checked.add(entry, format!("the {field} is damaged"));
            }
            Err(other) => return Err(mapping.error(other)),
        }
        if checked.faults.len() == FAULTS_MAX {
            break;
        }
    }
    Ok(records)
}

/// Checks the registry, if there is one, and returns the bytes of its records.
fn check_registry(mapping: &Mapping, checked: &mut Checked) -> Vec<Range> {
    let parts = registry::check::check(mapping, |part, fault| {
        checked.add(part, fault);
        checked.faults.len() < FAULTS_MAX
    });
    let range = |Part { at, end, of }| Range { at, end, of };
    parts.unwrap_or_default().into_iter().map(range).collect()
}

/// Returns whether a search for a name comes to an entry of the index.
///
/// A search ends at a free entry. The entries in use before an object's own are usually few.
fn is_reachable(mapping: &Mapping, number: u64, name: &str) -> bool {
    let entries = mapping.layout.index_entries;
    let steps = number.wrapping_sub(hash(name.as_bytes())) & (entries - 1);
    let index = mapping.words(mapping.layout.index_at(), entries).unwrap_or(&[]);
    (1..=steps.min(PROBES_MAX)).all(|step| {
        let entry = index.get((number.wrapping_sub(step) & (entries - 1)) as usize);
        // Relaxed: an entry that is in use stays so.
        entry.is_some_and(|entry| entry.load(Relaxed) != 0)
    })
}

/// Returns the bytes in the area of records that an object has.
fn record_ranges(object: &SegmentObject) -> Vec<Range> {
    let range = |at: u64, end| Range { at, end, of: format!("{:?}", object.name()) };
    let mut ranges = vec![range(object.record[0], object.record[1])];
    if object.kind() == ObjectKind::Budget {
        // Damaged words may have any value.
        let at = object.own[0];
        ranges.push(range(at, at.saturating_add(RECORD_BYTES)));
    }
    ranges
}

/// Adds the bytes in each lane that an object has.
fn add_lane_ranges(
    checked: &mut Checked,
    object: &SegmentObject,
    layout: &Layout,
    ranges: &mut Vec<Range>,
) {
    let Some(bytes) = object.kind().lane_bytes(layout) else { return };
    let mut add = |at: u64| {
        ranges.push(Range { at, end: at + bytes, of: format!("{:?}", object.name()) });
    };
    add(object.lane_at);
    if object.kind() == ObjectKind::Budget {
        return;
    }
    match object.own[1] {
        0 | MIXED => {}
        word if word & IN_USE != 0 && word & 14 == 0 && word < 1 << 62 => add(word & !IN_USE),
        word => {
            let fault = format!("the word of its negative amounts is {word:#x}");
            checked.add(format!("{:?}", object.name()), fault);
        }
    }
}

/// Reports ranges that overlap, or that end behind the bytes in use.
fn find_overlaps(checked: &mut Checked, what: &str, ranges: &mut [Range], used_end: u64) {
    ranges.sort_by_key(|range| range.at);
    for range in &*ranges {
        if range.end > used_end {
            checked.add(&range.of, format!("its {what} lies behind the bytes in use"));
        }
    }
    let mut longest: Option<&Range> = None;
    for range in &*ranges {
        if let Some(before) = longest.filter(|before| before.end > range.at) {
            checked.add(&range.of, format!("its {what} overlaps that of {}", before.of));
        }
        longest = Some(longest.filter(|before| before.end > range.end).unwrap_or(range));
    }
}

fn find_doubled_names(checked: &mut Checked, records: &BTreeMap<u64, SegmentObject>) {
    let mut names: Vec<_> = records.values().map(SegmentObject::name).collect();
    names.sort_unstable();
    for pair in names.windows(2).filter(|pair| pair[0] == pair[1]) {
        checked.add(format!("{:?}", pair[0]), "two objects have this name");
    }
}

//! Lists of a segment's objects: complete, and safe on damaged files.

use thiscpu::__internal::inspect;
use thiscpu::{ObjectKind, Objects, Segment, SegmentErrorKind, SegmentView};

use crate::common::segment::{attach, file_of, file_with, image_of, small_segment};
use crate::common::{DEFAULT_ONLY, Scenario, scenario};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(segment_objects::objects_are_listed_once, DEFAULT_ONLY),
    scenario!(segment_objects::budgets_are_listed_and_checked, DEFAULT_ONLY),
    scenario!(segment_objects::damaged_records_are_reported_alone, DEFAULT_ONLY),
    scenario!(segment_objects::check_finds_faults, DEFAULT_ONLY),
    scenario!(segment_objects::check_counts_bytes_of_no_object, DEFAULT_ONLY),
];

fn view_of(segment: &Segment) -> SegmentView {
    SegmentView::from_fd(file_of(segment).into()).expect("a segment")
}

fn list(objects: Objects<'_>) -> Vec<(String, ObjectKind)> {
    let mut all: Vec<_> = objects
        .map(|object| object.expect("a sound record"))
        .map(|object| (object.name().to_owned(), object.kind()))
        .collect();
    all.sort_by(|one, other| one.0.cmp(&other.0));
    all
}

fn objects_are_listed_once() {
    let segment = small_segment();
    let view = view_of(&segment);
    assert!(list(segment.objects()).is_empty() && list(view.objects()).is_empty());
    let mut expected = Vec::new();
    for number in 0..150_usize {
        let name = format!("{number:03} {}", "ä".repeat(number % 99));
        let kind = match number % 3 {
            0 => {
                segment.counter(&name).expect("room").add(-1);
                ObjectKind::Counter
            }
            1 => {
                segment.counters::<2>(&name).expect("room");
                ObjectKind::Counters(2)
            }
            _ => {
                segment.counters::<77>(&name).expect("room");
                ObjectKind::Counters(77)
            }
        };
        expected.push((name, kind));
    }
    assert_eq!(list(segment.objects()), expected);
    assert_eq!(list(view.objects()), expected);
    let checked = inspect::check(&view).expect("a sound segment");
    assert!(checked.faults.is_empty(), "{:?}", checked.faults);
    assert_eq!((checked.objects, checked.unused_bytes), (150, Some([0, 0])));
}

fn budgets_are_listed_and_checked() {
    let segment = small_segment();
    let view = view_of(&segment);
    // These take a cache line in each lane, so nothing lies unused before a budget.
    segment.counters::<2>("a").expect("room");
    segment.budget("b", 7).expect("room").try_acquire(3).expect("units");
    segment.budget("c", 7).expect("room");
    let kinds = [ObjectKind::Counters(2), ObjectKind::Budget, ObjectKind::Budget];
    let expected = ["a", "b", "c"].map(str::to_owned).into_iter().zip(kinds);
    assert_eq!(list(view.objects()), expected.collect::<Vec<_>>());
    let checked = inspect::check(&view).expect("a sound segment");
    assert!(checked.faults.is_empty(), "{:?}", checked.faults);
    assert_eq!((checked.objects, checked.unused_bytes), (3, Some([0, 0])));
    // Both would have one pool.
    let mut image = image_of(&segment);
    let words: Vec<u64> =
        image.chunks(8).map(|word| u64::from_le_bytes(word.try_into().expect("8"))).collect();
    let record = |name: u8| {
        let is_record = |at: &usize| words[*at + HEAD] == u64::from(name) && words[*at] >> 32 == 2;
        (0..words.len() - HEAD).find(is_record).expect("the record")
    };
    let pool = words[record(b'b') + SHARED_AT].to_le_bytes();
    image[8 * (record(b'c') + SHARED_AT)..][..8].copy_from_slice(&pool);
    let checked = inspect::check(&view_of(&attach(&image).expect("a copy"))).expect("an answer");
    assert_eq!(checked.faults.len(), 1, "{:?}", checked.faults);
}

/// The image of a segment with three objects, and where parts of it are, in words.
struct Parts {
    image: Vec<u8>,
    /// The record of `counter`, and the entry of the index that leads to it.
    record: usize,
    entry: usize,
    /// The record of `another`.
    other: usize,
    lane_bytes: u64,
}

impl Parts {
    fn new() -> Parts {
        let segment = small_segment();
        for name in ["counter", "another"] {
            segment.counter(name).expect("room").inc();
        }
        segment.counters::<3>("a group of counters with a long name").expect("room");
        let image = image_of(&segment);
        let word = |at: usize| u64::from_le_bytes(image[8 * at..8 * at + 8].try_into().expect("8"));
        let all = image.len() / 8;
        let record = |name: &[u8; 8]| {
            (0..all).find(|&at| word(at) == u64::from_le_bytes(*name)).expect("the name") - HEAD
        };
        let (counter, other) = (record(b"counter\0"), record(b"another\0"));
        let entry = (512..all).find(|&at| word(at) == 8 * counter as u64).expect("the entry");
        Parts { record: counter, other, entry, lane_bytes: word(7), image }
    }

    fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.image[8 * at..8 * at + 8].try_into().expect("8 bytes"))
    }

    fn with(&self, at: usize, value: u64) -> Vec<u8> {
        let mut image = self.image.clone();
        image[8 * at..8 * at + 8].copy_from_slice(&value.to_le_bytes());
        image
    }
}

/// Words of a record.
const KIND: usize = 0;
const LANE_AT: usize = 1;
const NAME_LEN: usize = 2;
/// The word that says where a budget's pool is.
const SHARED_AT: usize = 3;
/// The word of negative amounts.
const NEGATIVE_AT: usize = 4;
/// The first word of the name.
const HEAD: usize = 5;
/// Words of the header: the bytes in use of the records and of each lane.
const RECORDS_USED: usize = 16;
const LANES_USED: usize = 17;

fn damaged_records_are_reported_alone() {
    let parts = Parts::new();
    let (record, entry) = (parts.record, parts.entry);
    let cases = [
        (record + KIND, 0, "object kind"),
        (parts.other + KIND, 0, "object kind"),
        (record + KIND, 1 << 32, "object kind"),
        (record + KIND, 1 << 32 | 4097, "object kind"),
        (record + LANE_AT, u64::MAX, "place in the lanes"),
        (record + LANE_AT, !15, "place in the lanes"),
        (record + LANE_AT, parts.lane_bytes, "place in the lanes"),
        (record + LANE_AT, 8, "place in the lanes"),
        (record + NAME_LEN, 0, "object name"),
        (record + NAME_LEN, 6, "object name"),
        (record + NAME_LEN, 201, "object name"),
        (record + NAME_LEN, u64::MAX, "object name"),
        (record + HEAD, u64::from_le_bytes(*b"count\ner"), "object name"),
        (record + HEAD, u64::from_le_bytes(*b"count\xffr\0"), "object name"),
        (entry, 8, "index entry"),
        (entry, parts.word(entry) + 4, "index entry"),
        (entry, parts.image.len() as u64, "index entry"),
        (entry, !7, "index entry"),
    ];
    for (at, value, wanted) in cases {
        let image = parts.with(at, value);
        let segment = attach(&image).expect("a sound header");
        let view = SegmentView::from_fd(file_with(&image).into()).expect("a sound header");
        for objects in [segment.objects(), view.objects()] {
            let (sound, damaged): (Vec<_>, Vec<_>) = objects.partition(Result::is_ok);
            let [Err(error)] = &damaged[..] else { panic!("{value:#x} at {at}: {damaged:?}") };
            assert_eq!(*error.kind(), SegmentErrorKind::Damaged { field: wanted });
            assert_eq!(sound.len(), 2, "{value:#x} at {at}");
        }
    }
    // A newer version may have objects of other kinds.
    let image = parts.with(record + KIND, 9 << 32 | 3);
    let kinds = list(attach(&image).expect("a sound header").objects());
    assert!(kinds.contains(&("counter".into(), ObjectKind::Unknown { number: 9, count: 3 })));
}

fn check_finds_faults() {
    let parts = Parts::new();
    let (record, other, entry) = (parts.record, parts.other, parts.entry);
    let name = |name: &[u8; 8]| u64::from_le_bytes(*name);
    let free = (entry + 1..).find(|&at| parts.word(at) == 0).expect("a free entry");
    let cases = [
        (record + HEAD, name(b"counter!"), "object name"),
        (record + HEAD, name(b"sounder\0"), "no search finds \"sounder\""),
        (record + HEAD, name(b"another\0"), "two objects have this name"),
        (record + LANE_AT, parts.word(other + LANE_AT), "its place in the lanes overlaps that of"),
        (record + LANE_AT, parts.lane_bytes - 64, "lies behind the bytes in use"),
        (record + NEGATIVE_AT, 4, "the word of its negative amounts is 0x4"),
        (record + NEGATIVE_AT, parts.word(other + LANE_AT) | 1, "overlaps that of"),
        (record + NEGATIVE_AT, u64::MAX, "the word of its negative amounts is"),
        (free, parts.word(entry), "another entry leads to \"counter\" too"),
        (free, parts.word(entry) + 64 * 8, "object name"),
        (RECORDS_USED, u64::MAX, "bytes are in use of"),
        (RECORDS_USED, 64, "its record lies behind the bytes in use"),
        (LANES_USED, parts.lane_bytes + 1, "bytes are in use of"),
        (LANES_USED, 32, "its place in the lanes lies behind the bytes in use"),
    ];
    for (at, value, wanted) in cases {
        let view = SegmentView::from_fd(file_with(&parts.with(at, value)).into());
        let checked = inspect::check(&view.expect("a sound header")).expect("faults");
        let is_wanted = |fault: &inspect::Fault| fault.fault.contains(wanted);
        assert!(checked.faults.iter().any(is_wanted), "{wanted}: {:?}", checked.faults);
        assert_eq!(checked.unused_bytes, None);
    }
}

// As a process leaves it that is killed before it publishes an object.
fn check_counts_bytes_of_no_object() {
    let parts = Parts::new();
    let unused = |at: usize, more: u64| {
        let image = parts.with(at, parts.word(at) + more);
        let view = SegmentView::from_fd(file_with(&image).into()).expect("a segment");
        let checked = inspect::check(&view).expect("a sound segment");
        assert!(checked.faults.is_empty(), "{:?}", checked.faults);
        checked.unused_bytes
    };
    assert_eq!(unused(RECORDS_USED, 0), Some([0, 0]));
    assert_eq!(unused(RECORDS_USED, 128), Some([128, 0]));
    assert_eq!(unused(LANES_USED, 96), Some([0, 96]));
}

//! Segments that other versions of the library have made: used, or refused and left as they are.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use thiscpu::__internal::inspect;
use thiscpu::{Existing, Segment, SegmentError, SegmentErrorKind, SegmentView};

use crate::common::segment::{Place, small};
use crate::common::{DEFAULT_ONLY, Scenario, scenario};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(segment_versions::segment_of_version_0_1_is_used_or_refused, DEFAULT_ONLY),
    scenario!(segment_versions::segments_of_newer_versions_are_refused_untouched, DEFAULT_ONLY),
];

/// The length of a recorded segment, in bytes.
const LEN: usize = 256 << 10;

/// A segment of version 0.1 of this library: all words that are not 0, by their number.
///
/// It has a counter with both signs, in the middle of its fourth epoch, and a group of three.
const VERSION_0_1: [(usize, u64); 37] = [
    (0, 0x1a75_7063_7369_6874),
    (1, 1),
    (3, 0xa6d4_fd9a_82a3_8510),
    (4, 2),
    (5, 0x800),
    (6, 0x1_0000),
    (7, 0x1_0000),
    (8, 0x40),
    (9, 0x200),
    (16, 0x80),
    (17, 0x100),
    (1051, 0x1_0000),
    (1395, 0x1_0040),
    (8192, 0x1_0000_0001),
    (8194, 8),
    (8195, 3),
    (8196, 0x81),
    (8197, 0x7374_7365_7571_6572),
    (8200, 0x1_0000_0003),
    (8201, 0x20),
    (8202, 5),
    (8204, 0xa1),
    (8205, 0x73_657a_6973),
    (16384, 5),
    (16385, 0x40a),
    (16386, 6),
    (16387, 6),
    (16388, 0x500_0000),
    (16400, 5),
    (16401, u64::MAX),
    (16402, 3),
    (16413, 0xffff_ffff_fffe_ee90),
    (24576, 5),
    (24578, 3),
    (24579, 0x100_0000_0007),
    (24592, 5),
    (24594, 3),
];
/// The values of the recorded counter `requests` and the recorded group `sizes`.
const REQUESTS: i64 = (1 << 40) + 1046;
const SIZES: [i64; 3] = [5, 0, -70_000];

/// Returns the recorded segment with some words changed.
fn image(changes: &[(usize, u64)]) -> Vec<u8> {
    let mut image = vec![0; LEN];
    for &(number, value) in VERSION_0_1.iter().chain(changes) {
        image[8 * number..8 * number + 8].copy_from_slice(&value.to_le_bytes());
    }
    image
}

fn write(path: &Path, image: &[u8]) {
    fs::write(path, image).expect("a file");
    fs::set_permissions(path, Permissions::from_mode(0o600)).expect("a file");
}

/// Asserts that no way leads into a segment, and that none changes it.
fn assert_refused(place: &Path, before: &[u8], sentence: &str) {
    type Way = fn(&Path) -> Result<(), SegmentError>;
    let ways: [Way; 3] = [
        |path| Segment::open(path).map(drop),
        |path| SegmentView::open(path).map(drop),
        |path| small().open_or_create(path, Existing::Keep).map(drop),
    ];
    for way in ways {
        let error = way(place).expect_err("a segment of another version").to_string();
        assert!(error.contains(sentence), "{error}");
        assert!(error.contains("; use the version that made it, or remove it after "), "{error}");
    }
    assert!(fs::read(place).expect("the file") == before, "a refused file has changed");
}

// Processes of both versions run during a rolling update.
fn segment_of_version_0_1_is_used_or_refused() {
    let (place, image) = (Place::new(), image(&[]));
    write(&place, &image);
    match Segment::open(&place) {
        Ok(segment) => {
            let view = SegmentView::open(&place).expect("a segment");
            let checked = inspect::check(&view).expect("a segment");
            assert!(checked.faults.is_empty(), "{:?}", checked.faults);
            let bounds = view.counter("requests").expect("it exists").bounds();
            assert_eq!((bounds.low, bounds.high), (REQUESTS, REQUESTS));
            let bounds = view.counters::<3>("sizes").expect("it exists").bounds();
            assert_eq!(bounds.map(|bounds| bounds.low), SIZES);
            let counter = segment.counter("requests").expect("it exists");
            counter.add(-7);
            assert_eq!(counter.sum(), REQUESTS - 7);
            assert_eq!(segment.counters::<3>("sizes").expect("it exists").sum(), SIZES);
            assert_eq!(segment.objects().count(), 2);
        }
        Err(error) => {
            let SegmentErrorKind::OtherFormat { found: 1, known } = *error.kind() else {
                panic!("{error}");
            };
            let sentence =
                format!("it has format 1, and this version of thiscpu knows format {known}");
            assert_refused(&place, &image, &sentence);
        }
    }
    // A service that does not go on with old counts replaces it in both cases.
    let fresh = small().open_or_create(&place, Existing::Replace).expect("a new segment");
    assert_eq!(fresh.counter("requests").expect("room").sum(), 0);
}

fn segments_of_newer_versions_are_refused_untouched() {
    const FORMAT: usize = 1;
    const FEATURES: usize = 2;
    let place = Place::new();
    let known = {
        small().create(&place).expect("a segment");
        let bytes = fs::read(&place).expect("the file");
        fs::remove_file(&place).expect("the file");
        u64::from_le_bytes(bytes[8..16].try_into().expect("8 bytes"))
    };
    for (number, value, sentence) in [
        (FORMAT, known + 1, format!("it has format {}, and this version", known + 1)),
        (FORMAT, u64::MAX, format!("it has format {}, and this version", u64::MAX)),
        (FEATURES, 1 << 40, "it has features 0x10000000000, which this version".to_owned()),
    ] {
        let image = image(&[(FORMAT, known), (number, value)]);
        write(&place, &image);
        assert_refused(&place, &image, &sentence);
    }
}

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
    scenario!(segment_versions::recorded_registry_is_used, DEFAULT_ONLY),
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

/// The length of a recorded segment with a registry, in bytes.
const LEN_WITH_SERIES: usize = 576 << 10;

/// A segment with a registry: all words that are not 0, by their number.
///
/// The family `requests_total` has the labels `method` and `path`, and two series.
const WITH_SERIES: [(usize, u64); 56] = [
    (0, 0x1a75_7063_7369_6874),
    (1, 1),
    (2, 1),
    (3, 0xb592_a1d0_ab63_56a0),
    (4, 2),
    (5, 0x1000),
    (6, 0x4_0000),
    (7, 0x1_0000),
    (8, 8),
    (9, 0x40),
    (10, 1),
    (16, 0x100),
    (5184, 2),
    (5192, 2),
    (5193, 1),
    (5425, 0xd1e1_d600_0001_00c2),
    (5495, 0x6045_4300_0001_0001),
    (5532, 0x254c_fe00_0001_0082),
    (8192, 0x4_0006_0001),
    (8193, 1),
    (8194, 0x51e3),
    (8195, 0x7265_6b72_6f77),
    (8198, 14),
    (8199, 9),
    (8200, 6),
    (8201, 4),
    (8202, 0x7374_7365_7571_6572),
    (8203, 0x6c61_746f_745f),
    (8204, 0x7374_7365_7571_6552),
    (8205, 0x2e),
    (8206, 0x646f_6874_656d),
    (8207, 0x6874_6170),
    (8208, 0x2_0003_0002),
    (8209, 0x1_0000),
    (8211, 3),
    (8212, 1),
    (8213, 0x54_4547),
    (8214, 0x2f),
    (8216, 0x2_0003_0002),
    (8217, 0x1_0000),
    (8218, 1),
    (8220, 14),
    (8221, 0x6567_6e6f_6c2f_612f),
    (8222, 0x6874_6170_2f72),
    (57344, 1),
    (57346, 3),
    (57348, 1),
    (57350, 3),
    (65536, 4),
    (65537, 0x1_1586),
    (65538, 3),
    (65540, 1),
    (65541, 0x100_0000_0000),
    (65542, 3),
    (65543, 7),
    (73727, 0x646e_6520_7570_63e7),
];
/// The values of the labels of its series, and their sums.
const SERIES: [([&str; 2], u64); 2] =
    [(["GET", "/"], 71_046), (["", "/a/longer/path"], (1 << 40) + 7)];

/// Returns the recorded segment with some words changed.
fn image(changes: &[(usize, u64)]) -> Vec<u8> {
    image_of(LEN, &VERSION_0_1, changes)
}

fn image_of(len: usize, words: &[(usize, u64)], changes: &[(usize, u64)]) -> Vec<u8> {
    let mut image = vec![0; len];
    for &(number, value) in words.iter().chain(changes) {
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

// A version with another layout of registries has another bit in the features.
fn recorded_registry_is_used() {
    let place = Place::new();
    write(&place, &image_of(LEN_WITH_SERIES, &WITH_SERIES, &[]));
    let segment = Segment::open(&place).expect("a known format");
    let view = SegmentView::open(&place).expect("a known format");
    let checked = inspect::check(&view).expect("a segment");
    assert!(checked.faults.is_empty(), "{:?}", checked.faults);
    let registry = segment.registry().expect("a registry");
    let scrapes = [registry.scrape(), view.registry().and_then(|registry| registry.scrape())];
    for scrape in scrapes {
        let scrape = scrape.expect("memory");
        assert!(scrape.damaged().is_empty(), "{:?}", scrape.damaged());
        let found: Vec<_> = scrape.samples().map(|it| (it.name(), it.value())).collect();
        assert_eq!(found, SERIES.map(|(_, sum)| ("requests_total", Some(sum))));
    }
    let labels = ["method", "path"];
    let family = registry.counter_family("requests", "", &labels).expect("it exists");
    for (values, sum) in SERIES {
        let series = family.find(&values).expect("no damage").expect("it exists");
        series.inc();
        assert_eq!(series.sum(), sum + 1);
    }
    family.series(&["PUT", "/"]).expect("room").inc();
    let error = registry.counter_family("requests", "", &["path"]).expect_err("other labels");
    assert!(error.to_string().contains("process 20963 (\"worker\")"), "{error}");
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

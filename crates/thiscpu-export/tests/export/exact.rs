//! Values while workers add to them.

use std::fs;
use std::time::Instant;

use thiscpu::SegmentView;
use thiscpu_test_support::slowdown;

use crate::fixture::{Exporter, PATIENCE, Place, Worker, printed, requests, value};

/// Returns the values of both series of a worker.
fn both(place: &Place, text: &str) -> [u64; 2] {
    let label = place.label("shop");
    ["/first", "/second"].map(|path| {
        let series = format!("requests_total{{segment=\"{label}\",path=\"{path}\"}}");
        value(text, &series).unwrap_or_else(|| panic!("{text}")) as u64
    })
}

/// How often each test looks.
const LOOKS: u32 = 200;

#[test]
fn exact_values_are_of_one_instant_while_a_worker_adds() {
    let place = Place::new();
    drop(place.create("shop"));
    let worker = Worker::start("add", &place.path("shop"));
    let exporter = Exporter::start(&[&place.path("shop")], &["--exact"]);
    let mut last = 0;
    for _ in 0..LOOKS {
        let text = exporter.scrape();
        let [first, second] = both(&place, &text);
        // The worker adds to the first one, and then to the second.
        assert!(second <= first && first <= second + 1, "{first} {second}");
        assert!(text.contains("part=\"series\",kind=\"exact\"} 2\n"), "{text}");
        assert!(text.contains(",read=\"exact\"} 1\n"), "{text}");
        assert!(last <= second, "{last} {second}");
        last = second;
    }
    assert!(last >= 1000);
    drop(worker);
}

#[test]
fn read_only_values_lie_between_those_before_and_after() {
    let place = Place::new();
    let segment = place.create("shop");
    let series = ["/first", "/second"].map(|path| requests(&segment, path));
    let worker = Worker::start("add", &place.path("shop"));
    let exporter = Exporter::start(&[&place.path("shop")], &[]);
    let sums = || [series[0].sum(), series[1].sum()];
    let mut last = [0; 2];
    let (mut have_bounds, mut looks) = (false, 0);
    let begun = Instant::now();
    // On a busy machine the worker seldom runs during a look.
    while looks < LOOKS || !have_bounds {
        assert!(begun.elapsed() < PATIENCE * slowdown(), "never seen while the worker adds");
        looks += 1;
        let before = sums();
        let text = exporter.scrape();
        let after = sums();
        have_bounds |= !text.contains("part=\"series\",kind=\"bounds\"} 0\n");
        // Missing if the worker has saved its count during all looks.
        if text.contains("part=\"series\",kind=\"missing\"} 0\n") {
            let values = both(&place, &text);
            for at in 0..2 {
                assert!(before[at] <= values[at] && values[at] <= after[at], "{at}: {text}");
                assert!(last[at] <= values[at], "{at}: {text}");
            }
            last = values;
        }
    }
    worker.kill();
    // Nobody changes them now, so the bounds are the exact values.
    let text = exporter.scrape();
    assert_eq!(both(&place, &text), sums());
    assert!(text.contains("part=\"series\",kind=\"exact\"} 2\n"), "{text}");
    assert!(text.contains(",read=\"only\"} 1\n"), "{text}");
}

#[test]
fn values_without_bounds_are_missing_and_exact_ones_are_not() {
    let place = Place::new();
    let segment = place.create("shop");
    let large = requests(&segment, "/large");
    (0..2).for_each(|_| large.add(i64::MAX as u64));
    requests(&segment, "/").inc();
    drop((large, segment));
    let text = printed(&place.path("shop"), &[]);
    assert!(!text.contains("/large") && text.contains(",path=\"/\"} 1\n"), "{text}");
    assert!(text.contains("part=\"series\",kind=\"missing\"} 1\n"), "{text}");
    let text = printed(&place.path("shop"), &["--exact"]);
    assert!(text.contains(",path=\"/large\"} 18446744073709551614\n"), "{text}");
    assert!(text.contains("part=\"series\",kind=\"missing\"} 0\n"), "{text}");
}

#[test]
fn stopped_worker_blocks_no_scrape() {
    let place = Place::new();
    drop(place.create("shop"));
    for options in [&[][..], &["--exact"]] {
        let exporter = Exporter::start(&[&place.path("shop")], options);
        // Stopped at many instructions, also in the middle of an add.
        for _ in 0..5 {
            let worker = Worker::start("add", &place.path("shop"));
            worker.stop();
            let [first, second] = both(&place, &exporter.scrape());
            assert_eq!(both(&place, &exporter.scrape()), [first, second]);
            assert!(first >= 1000, "{first} {second}");
        }
    }
}

#[test]
fn exact_values_make_no_object_that_a_name_does_not_lead_to() {
    let place = Place::new();
    let path = place.path("shop");
    drop(place.create("shop").counter("orders").unwrap());
    // The index leads to the record by the hash of the old name.
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.windows(6).position(|window| window == b"orders").unwrap();
    bytes[at..at + 6].copy_from_slice(b"others");
    fs::write(&path, bytes).unwrap();
    let objects = || SegmentView::open(&path).unwrap().objects().count();
    assert_eq!(objects(), 1);
    for options in [&[][..], &["--exact"]] {
        let text = printed(&path, options);
        assert!(text.contains("part=\"counters\",kind=\"missing\"} 1\n"), "{text}");
        let damaged =
            format!("thiscpu_segment_damaged_records{{segment=\"{}\"}}", place.label("shop"));
        assert_eq!(value(&text, &damaged), Some(0.0), "{text}");
        assert_eq!(objects(), 1);
    }
}

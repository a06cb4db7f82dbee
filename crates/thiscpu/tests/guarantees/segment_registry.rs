//! Registries in segments: names, labels and values, in several processes and on full file systems.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use thiscpu::__internal::inspect;
use thiscpu::{
    RegistryView, Segment, SegmentError, SegmentErrorKind, SegmentOptions, SegmentView,
    SharedFamily, SharedRegistry,
};

use crate::common::resources::limit_address_space_to;
use crate::common::segment::{Place, attach, file_of, file_with, image_of, in_processes, small};
use crate::common::{
    DEFAULT_ONLY, Scenario, TIERS, fork, namespace, pin, scale, scenario, together_while,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(segment_registry::series_are_found_again, DEFAULT_ONLY),
    scenario!(segment_registry::names_follow_the_rules_of_prometheus, DEFAULT_ONLY),
    scenario!(segment_registry::other_labels_are_refused_and_tell_who_has_the_family, DEFAULT_ONLY),
    scenario!(segment_registry::segments_without_registry_say_so, DEFAULT_ONLY),
    scenario!(segment_registry::processes_that_race_for_series_get_one_each, DEFAULT_ONLY),
    scenario!(segment_registry::losers_of_races_leave_room, DEFAULT_ONLY),
    scenario!(segment_registry::scrapes_see_a_token_once, TIERS).needs(pin::two_cpus),
    scenario!(segment_registry::views_bound_values, DEFAULT_ONLY),
    scenario!(segment_registry::views_give_no_bounds_of_wrapped_counters, DEFAULT_ONLY),
    scenario!(segment_registry::full_registry_counts_what_it_refuses, DEFAULT_ONLY),
    scenario!(segment_registry::record_can_end_where_the_area_ends, DEFAULT_ONLY),
    scenario!(segment_registry::full_file_system_keeps_series, DEFAULT_ONLY)
        .needs(namespace::can_hide_sys),
    scenario!(segment_registry::shortened_file_is_noticed, DEFAULT_ONLY),
    scenario!(segment_registry::series_take_the_documented_memory, DEFAULT_ONLY),
    scenario!(segment_registry::damage_hides_no_other_family, DEFAULT_ONLY),
    scenario!(segment_registry::entry_beyond_the_records_takes_no_memory, DEFAULT_ONLY),
    scenario!(segment_registry::check_finds_damage, DEFAULT_ONLY),
    scenario!(segment_registry::check_of_a_hostile_file_takes_little_memory, DEFAULT_ONLY),
    scenario!(segment_registry::families_without_end_are_refused, DEFAULT_ONLY),
];

fn with_series(series: u32) -> SegmentOptions {
    let mut options = small();
    options.series(series);
    options
}

fn registry(segment: &Segment) -> SharedRegistry {
    segment.registry().expect("a registry")
}

fn family(segment: &Segment) -> SharedFamily {
    let labels = ["method", "status"];
    registry(segment).counter_family("requests", "Requests.", &labels).expect("room")
}

/// Returns a second mapping of a segment, as another process has.
fn other(segment: &Segment) -> Segment {
    Segment::from_fd(file_of(segment).into()).expect("a segment")
}

fn view(segment: &Segment) -> RegistryView {
    let view = SegmentView::from_fd(file_of(segment).into()).expect("a segment");
    view.registry().expect("a registry")
}

fn series_are_found_again() {
    let segment = with_series(200).anonymous().expect("a segment");
    let other = other(&segment);
    let long = "ä".repeat(32 << 10);
    let values = [
        ["GET", "200"],
        ["", "GET"],
        ["GET", ""],
        ["GET", "404"],
        ["", ""],
        ["GET2", "00"],
        ["G", &long],
        [&long, ""],
    ];
    assert!(family(&segment).find(&values[0]).expect("no damage").is_none());
    for (number, values) in values.iter().enumerate() {
        family(&segment).series(values).expect("room").add(1 << (7 * number));
        family(&other).series(values).expect("room").inc();
    }
    assert!(registry(&other).find_family("request").expect("no damage").is_none());
    let found =
        registry(&other).find_family("requests_total").expect("no damage").expect("it exists");
    assert_eq!(
        (found.name(), &*found.label_names().join(" ")),
        ("requests_total", "method status")
    );
    let mut scraped = Vec::new();
    let scrape = registry(&other).scrape().expect("memory");
    assert!(scrape.is_exact() && scrape.damaged().is_empty());
    for sample in scrape.samples() {
        assert_eq!((sample.name(), sample.help()), ("requests_total", "Requests."));
        let labels: Vec<_> = sample.labels().collect();
        scraped.push((labels, sample.value().expect("an exact value")));
    }
    for (number, values) in values.iter().enumerate() {
        let sum = (1 << (7 * number)) + 1;
        assert_eq!(found.find(values).expect("no damage").expect("it exists").sum(), sum);
        let labels = ["method", "status"].into_iter().zip(*values);
        let labels: Vec<_> = labels.filter(|(_, value)| !value.is_empty()).collect();
        assert!(scraped.contains(&(labels, sum)), "{number}");
    }
    let usage = registry(&segment).usage().expect("a registry");
    assert_eq!((usage.series, usage.families, usage.capacity), (8, 1, 200));
    assert_eq!((scraped.len(), usage.refused), (8, 0));
    // Values are told apart by where they end.
    let long = "x".repeat((64 << 10) + 1);
    let too_long = family(&segment).series(&[&long, ""]).expect_err("a long value");
    assert!(
        too_long.to_string().contains("a label's value has 65537 bytes; use 65536"),
        "{too_long}"
    );
    for values in [&[""][..], &["", "", ""]] {
        let error = family(&segment).series(values).expect_err("another number");
        assert!(
            error.to_string().contains("values for the 2 labels of requests_total; "),
            "{error}"
        );
    }
}

fn names_follow_the_rules_of_prometheus() {
    let segment = with_series(10).anonymous().expect("a segment");
    let make = |name: &str, labels: &[&str]| registry(&segment).counter_family(name, "", labels);
    for (name, labels, wanted) in [
        ("", &[][..], "the name of a metric is empty; "),
        ("9a", &[], "the metric \"9a_total\" has '9' at position 0; "),
        ("a b", &[], "has ' ' at position 1; "),
        ("a", &["a:b"], "the label \"a:b\" has ':' at position 1; "),
        ("a", &["le"], "the label \"le\" is reserved; "),
        ("a", &["__x"], "the label \"__x\" is reserved; "),
        ("a", &[""], "the name of a label is empty; "),
        ("a", &["x", "y", "x"], "the label \"x\" is there twice; "),
        ("a", &["x"; 65], "there are 65 labels; "),
    ] {
        let error = make(name, labels).expect_err("a name that is not allowed").to_string();
        assert!(
            error.starts_with("cannot register a series in ") && error.contains(wanted),
            "{error}"
        );
    }
    make("a:b_9", &["x_1"]).expect("a name that is allowed");
    assert_eq!(registry(&segment).usage().expect("a registry").families, 1);
}

fn other_labels_are_refused_and_tell_who_has_the_family() {
    let segment = with_series(10).anonymous().expect("a segment");
    in_processes(1, |_| drop(family(&segment)));
    for labels in [&["method"][..], &["status", "method"], &[]] {
        let error = registry(&segment).counter_family("requests_total", "", labels);
        let error = error.expect_err("other labels");
        let SegmentErrorKind::OtherFamily(conflict) = error.kind() else { panic!("{error}") };
        assert!(conflict.pid != 0 && conflict.pid != std::process::id(), "{error}");
        let program = std::env::current_exe().expect("a program");
        let program = program.file_name().expect("a name").to_string_lossy().into_owned();
        assert!(program.starts_with(&conflict.program) && conflict.program.len() > 5, "{error}");
        assert_eq!(conflict.labels, ["method", "status"]);
        let sentence = format!("registered by process {} (\"{}", conflict.pid, conflict.program);
        assert!(error.to_string().contains(&sentence), "{error}");
        assert!(error.to_string().contains("; use its type and labels, or another name"));
    }
    family(&segment);
}

fn segments_without_registry_say_so() {
    let segment = small().anonymous().expect("a segment");
    let error = segment.registry().expect_err("no registry");
    assert_eq!(*error.kind(), SegmentErrorKind::NoRegistry);
    assert!(error.to_string().contains("; create it with a number of `series`"), "{error}");
    let place = Place::new();
    small().create(&place).expect("a segment");
    let kept = with_series(10).open_or_create(&place, thiscpu::Existing::Keep);
    assert!(kept.expect("the segment").registry().is_err());
    let error = with_series((4 << 20) + 1).anonymous().expect_err("too many");
    assert!(error.to_string().contains("series is out of range; use 0 to 4194304"), "{error}");
}

/// Repeats `work` in two threads until `body` returns.
fn beside(work: impl Fn() + Sync, body: impl FnOnce()) {
    let over = AtomicBool::new(false);
    let repeat = |thread| {
        pin::pin(thread);
        while !over.load(SeqCst) {
            work();
        }
    };
    /// Ends the threads also if `body` panics.
    struct End<'a>(&'a AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, SeqCst);
        }
    }
    together_while(2, repeat, || {
        let _end = End(&over);
        body();
    });
}

/// Asserts that each number was inserted once, and has the wanted value.
fn assert_each_once(segment: &Segment, names: usize, wanted: u64) {
    let scrape = registry(segment).scrape().expect("memory");
    assert!(scrape.damaged().is_empty(), "{:?}", scrape.damaged());
    let mut found = vec![0; names];
    for sample in scrape.samples() {
        let labels: Vec<_> = sample.labels().collect();
        let [("method", number), ("status", "value with more bytes")] = labels[..] else {
            panic!("{labels:?}")
        };
        found[number.parse::<usize>().expect("a number")] += 1;
        assert_eq!(sample.value(), Some(wanted), "{number}");
    }
    assert!(found.iter().all(|&count| count == 1), "{found:?}");
}

fn processes_that_race_for_series_get_one_each() {
    const NAMES: usize = 500;
    for _ in 0..scale::rounds(40) {
        let segment = with_series(NAMES as u32).anonymous().expect("a segment");
        in_processes(4, |process| {
            let own = if process < 2 { other(&segment) } else { segment.clone() };
            for number in 0..NAMES {
                let values = [&*number.to_string(), "value with more bytes"];
                family(&own).series(&values).expect("room").inc();
            }
        });
        assert_each_once(&segment, NAMES, 4);
        assert_eq!(registry(&segment).usage().expect("a registry").refused, 0);
    }
}

// There are few more cells than names. Without spares, they would be used up.
fn losers_of_races_leave_room() {
    const NAMES: usize = 20_000;
    let segment = with_series(NAMES as u32).anonymous().expect("a segment");
    in_processes(4, |_| {
        let family = family(&segment);
        for number in 0..NAMES {
            let values = [&*number.to_string(), "value with more bytes"];
            family.series(&values).expect("room").inc();
        }
    });
    assert_each_once(&segment, NAMES, 4);
}

// Each thread counts in the first series, and then in the second.
fn scrapes_see_a_token_once() {
    let segment = with_series(100).anonymous().expect("a segment");
    let (family, view) = (family(&segment), view(&segment));
    let first = family.series(&["first", ""]).expect("room");
    // A look at these lies between those at the two.
    let fillers: Vec<_> = (0..90).map(|n| family.series(&["filler", &n.to_string()])).collect();
    let second = family.series(&["second", ""]).expect("room");
    let carry = || {
        first.inc();
        second.inc();
        fillers.iter().flatten().for_each(|filler| filler.inc());
    };
    beside(carry, || {
        for _ in 0..scale::rounds(4000) {
            let scrape = registry(&segment).scrape().expect("memory");
            assert!(scrape.is_exact());
            let value = |name| {
                let mut samples = scrape.samples();
                let sample = samples.find(|it| it.labels().next() == Some(("method", name)));
                sample.expect("a series").value().expect("an exact value")
            };
            let (first, second) = (value("first"), value("second"));
            // Each of two threads can be between its two adds.
            assert!(first >= second && first <= second + 2, "{first}, {second}");
            let scrape = view.scrape().expect("memory");
            let bounds = |name| {
                let mut samples = scrape.samples();
                let sample = samples.find(|it| it.labels().next() == Some(("method", name)));
                sample.map(|sample| (sample.low(), sample.high())).expect("a series")
            };
            let (first, second) = (bounds("first"), bounds("second"));
            assert!(first.1 >= second.0 && first.0 <= second.1 + 2, "{first:?}, {second:?}");
        }
    });
}

fn views_bound_values() {
    let segment = with_series(100).anonymous().expect("a segment");
    let (family, view) = (family(&segment), view(&segment));
    let series = family.series(&["GET", "200"]).expect("room");
    series.add(1 << 40);
    let quiet = family.series(&["", ""]).expect("room");
    quiet.add(5);
    assert!(view.scrape().expect("memory").is_exact());
    let bounds = view.find("requests", &["GET", "200"]).expect("no damage").expect("it exists");
    assert_eq!((bounds.low, bounds.high), (1 << 40, 1 << 40));
    assert!(view.find("requests", &["GET", "201"]).expect("no damage").is_none());
    assert!(view.find("others", &[]).expect("no damage").is_none());
    beside(
        || series.add(3),
        || {
            for _ in 0..scale::rounds(4000) {
                let before = series.sum();
                let scrape = view.scrape().expect("memory");
                let after = series.sum();
                let [first, second] = [0, 1].map(|n| scrape.samples().nth(n).expect("a series"));
                assert!(before <= first.low() && first.low() <= first.high(), "{before} {first:?}");
                assert!(first.high() <= after, "{first:?} {after}");
                assert_eq!(second.value(), Some(5));
            }
        },
    );
    let usage = view.usage().expect("a registry");
    assert_eq!((usage.series, usage.families), (2, 1));
}

fn views_give_no_bounds_of_wrapped_counters() {
    let segment = with_series(10).anonymous().expect("a segment");
    let series = family(&segment).series(&["", ""]).expect("room");
    series.add(u64::MAX);
    assert_eq!(series.sum(), i64::MAX as u64);
    let high = |scrape: thiscpu::Scrape| {
        let sample = scrape.samples().next().expect("a series");
        (sample.low(), sample.high(), sample.value())
    };
    let most = i64::MAX as u64;
    assert_eq!(high(view(&segment).scrape().expect("memory")), (most, most, Some(most)));
    series.inc();
    assert_eq!(high(registry(&segment).scrape().expect("memory")).2, Some(1 << 63));
    assert_eq!(high(view(&segment).scrape().expect("memory")), (0, u64::MAX, None));
    let bounds = view(&segment).find("requests", &["", ""]).expect("no damage").expect("it exists");
    assert_eq!((bounds.low, bounds.high), (i64::MIN, i64::MAX));
    series.add(u64::MAX);
    series.inc();
    assert_eq!(series.sum(), 0);
}

fn full_registry_counts_what_it_refuses() {
    let segment = with_series(100).anonymous().expect("a segment");
    let (family, view) = (family(&segment), view(&segment));
    let series = |n: u64| family.series(&[&n.to_string(), ""]).map(|series| series.inc());
    let stored = (0..).take_while(|&n| series(n).is_ok()).count() as u64;
    assert!((100..=164).contains(&stored), "{stored} series");
    let error = series(stored).expect_err("a full registry");
    assert_eq!(*error.kind(), SegmentErrorKind::RegistryFull);
    let used = |image: &[u8]| u64::from_le_bytes(image[128..136].try_into().expect("8 bytes"));
    let before = used(&image_of(&segment));
    for n in 0..1000 {
        series(stored + n).expect_err("a full registry");
    }
    assert_eq!(used(&image_of(&segment)), before, "refused series take memory");
    (0..stored).for_each(|n| series(n).expect("it exists"));
    let usage = view.usage().expect("a registry");
    assert_eq!((usage.series, usage.refused), (stored, 1002));
    assert_eq!(
        (view.scrape().expect("memory").refused(), registry(&segment).refused()),
        (1002, 1002)
    );
    assert!(registry(&segment).scrape().expect("memory").samples().all(|it| it.value() == Some(2)));
}

// The last record takes all bytes that are left.
fn record_can_end_where_the_area_ends() {
    let segment = with_series(100).anonymous().expect("a segment");
    let family = family(&segment);
    let word = |at: usize| {
        let image = image_of(&segment);
        u64::from_le_bytes(image[at..at + 8].try_into().expect("8 bytes"))
    };
    let left = || word(6 * 8) - word(16 * 8);
    // A record has 3 words, two lengths, and the values. Its size is a power of two, or 3/2 of it.
    let value = |bytes: u64| "x".repeat(bytes as usize - 48);
    let mut size = 32 << 10;
    while left() > 64 {
        while size > left() - 64 {
            size /= 2;
        }
        family.series(&[&value(size.max(64)), &left().to_string()[..3]]).expect("room");
    }
    let last = value(64);
    family.series(&[&last, ""]).expect("room").add(7);
    assert_eq!(left(), 0);
    assert_eq!(family.series(&[&last, ""]).expect("it exists").sum(), 7);
    assert_eq!(
        family.series(&["y", ""]).expect_err("no room").kind(),
        &SegmentErrorKind::RegistryFull
    );
    for scrape in [registry(&segment).scrape(), view(&segment).scrape()] {
        let scrape = scrape.expect("memory");
        assert!(scrape.damaged().is_empty(), "{:?}", scrape.damaged());
        assert!(scrape.samples().any(|sample| sample.value() == Some(7)));
    }
    attach(&image_of(&segment)).expect("a copy").registry().expect("a registry");
}

// Each entry leads to a large record, or into its values.
fn check_of_a_hostile_file_takes_little_memory() {
    let segment = with_series(50_000).anonymous().expect("a segment");
    let value = "x".repeat(60 << 10);
    family(&segment).series(&[&value, &value]).expect("room");
    let mut image = image_of(&segment);
    let word = |image: &[u8], at: usize| {
        u64::from_le_bytes(image[8 * at..8 * at + 8].try_into().expect("8 bytes"))
    };
    let waiters_at = 4096 + 8 * word(&image, 5) + 64 * word(&image, 8);
    let index = (waiters_at + 64 * word(&image, 9)) as usize / 8 + INDEX;
    let entries = index..index + 150_192usize.next_power_of_two();
    let own = entries.clone().map(|at| word(&image, at)).find(|it| it & 63 == 2);
    let own = own.expect("the entry of the series");
    for at in entries {
        let hostile = own ^ (at as u64) << 40;
        image[8 * at..8 * at + 8].copy_from_slice(&hostile.to_le_bytes());
    }
    let file = file_with(&image);
    drop(image);
    fork::run(|| {
        let view = SegmentView::from_fd(file.into()).expect("a segment");
        let scrape_and_check = || {
            let faults = inspect::check(&view).expect("an answer").faults;
            assert_eq!(faults.len(), 1000);
            let is_overlap = |it: &inspect::Fault| it.fault.contains("its record overlaps that of");
            assert!(faults[1..].iter().all(is_overlap), "{:?}", faults[1]);
            let bytes: usize = faults.iter().map(|it| it.part.len() + it.fault.len()).sum();
            assert!(bytes < 500_000, "{bytes} bytes of faults");
            let scrape = view.registry().and_then(|registry| registry.scrape()).expect("memory");
            assert_eq!(scrape.damaged().len(), 1000);
        };
        let _limit = limit_address_space_to(64 << 20);
        scrape_and_check();
    })
    .unwrap_or_else(|error| panic!("{error}"));
}

fn families_without_end_are_refused() {
    let segment = with_series(1000).anonymous().expect("a segment");
    let registry = registry(&segment);
    let make = |number: usize| registry.counter_family(&format!("family_{number}"), "", &["a"]);
    for number in 0..1000 {
        make(number).expect("room").series(&["value"]).expect("room").inc();
    }
    let made = (1000..).take_while(|&number| make(number).is_ok()).count() + 1000;
    assert_eq!(made, 1064);
    let error = make(made).expect_err("as many families as possible");
    assert_eq!(*error.kind(), SegmentErrorKind::RegistryFull);
    (0..made).for_each(|number| drop(make(number).expect("it exists")));
    assert_eq!(registry.scrape().expect("memory").samples().count(), 1000);
}

fn is_full(error: &SegmentError) -> bool {
    matches!(error.kind(), SegmentErrorKind::System { errno: libc::ENOSPC, .. })
}

/// Returns how many pages are free in the file system of a file.
fn free_pages(place: &Place) -> u64 {
    use std::os::unix::ffi::OsStrExt as _;
    let path = std::ffi::CString::new(place.as_os_str().as_bytes()).expect("a path");
    // SAFETY: zeros are valid for this plain data.
    let mut status: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with a zero byte, and the structure is valid for writes.
    assert_eq!(unsafe { libc::statvfs(path.as_ptr(), &raw mut status) }, 0);
    status.f_bfree
}

fn full_file_system_keeps_series() {
    namespace::mount_tmpfs(c"/dev/shm", c"size=1024k").expect("a namespace");
    let (place, filler) = (Place::new(), Place::new());
    fs::write(&filler, [1; 1000 << 10]).expect("room");
    let error = with_series(10_000).create(&place).expect_err("no room");
    assert!(is_full(&error) && !place.exists(), "{error}");
    fs::remove_file(&filler).expect("the file");
    let segment = with_series(10_000).create(&place).expect("a segment");
    let own = family(&segment);
    own.series(&["first", ""]).expect("room").add(3);
    for n in 0..2000 {
        own.series(&[&n.to_string(), "a longer value"]).expect("room").add(3);
    }
    // Everything that is left, but less than a quarter of what series have.
    let mut file = fs::File::create(&filler).expect("a file");
    while std::io::Write::write_all(&mut file, &[1; 4096]).is_ok() {}
    file.set_len(file.metadata().expect("a file").len() - (20 << 10)).expect("a shorter file");
    let refused = (2000..12_000).find_map(|n| {
        let made = own.series(&[&n.to_string(), "a longer value"]);
        made.map(|series| series.add(3)).err().map(|error| (n, error))
    });
    let (stored, error) = refused.expect("a full file system");
    assert!(is_full(&error), "{error}");
    // A step that was refused took what was left for the first lane.
    assert_eq!(free_pages(&place), 0);
    for _ in 0..100 {
        own.series(&["more", ""]).expect_err("a full file system");
    }
    let view = SegmentView::open(&place).expect("a segment").registry().expect("a registry");
    let attached = Segment::open(&place).expect("a segment");
    assert_eq!(
        family(&attached).find(&["first", ""]).expect("memory").expect("it exists").sum(),
        3
    );
    for scrape in [registry(&segment).scrape(), registry(&attached).scrape(), view.scrape()] {
        let scrape = scrape.unwrap_or_else(|error| panic!("{error}"));
        assert!(scrape.damaged().is_empty(), "{:?}", scrape.damaged());
        assert!(scrape.refused() >= 101 && scrape.samples().count() == stored + 1);
        assert!(scrape.samples().all(|sample| sample.value() == Some(3)));
    }
    fs::remove_file(&filler).expect("the file");
    drop(file);
    own.series(&["more", ""]).expect("room").inc();
}

fn shortened_file_is_noticed() {
    for missing in [1, 4096, 70_000, u64::MAX] {
        let place = Place::new();
        let segment = with_series(100).create(&place).expect("a segment");
        let family = family(&segment);
        let series = family.series(&["GET", ""]).expect("room");
        series.inc();
        let view = SegmentView::open(&place).expect("a segment").registry().expect("a registry");
        let length = fs::metadata(&place).expect("the file").len();
        let file = fs::File::options().write(true).open(&place).expect("the file");
        file.set_len(length.saturating_sub(missing)).expect("a shorter file");
        let all = [
            family.series(&["GET", ""]).map(drop),
            family.series(&["PUT", ""]).map(drop),
            family.find(&["GET", ""]).map(drop),
            registry_error(&segment),
            view.scrape().map(drop),
            view.find("requests", &["GET", ""]).map(drop),
        ];
        for (number, result) in all.into_iter().enumerate() {
            let error = result.expect_err("a short file");
            assert_eq!(*error.kind(), SegmentErrorKind::Lost, "call {number}, {missing} missing");
        }
        series.inc();
        assert!(segment.is_lost());
    }
}

fn registry_error(segment: &Segment) -> Result<(), SegmentError> {
    segment.registry().and_then(|registry| registry.scrape()).map(drop)
}

// The figures in the documentation of `SegmentOptions::series`.
fn series_take_the_documented_memory() {
    const SERIES: u64 = 20_000;
    let blocks = |segment: &Segment| {
        use std::os::unix::fs::MetadataExt as _;
        512 * file_of(segment).metadata().expect("a file").blocks()
    };
    let without = small().anonymous().expect("a segment");
    let segment = with_series(SERIES as u32).anonymous().expect("a segment");
    let index = blocks(&segment) - blocks(&without);
    assert!((32 * SERIES..=57 * SERIES).contains(&index), "{index} bytes of an index");
    let before = blocks(&segment);
    let family = family(&segment);
    for number in 0..SERIES {
        family.series(&[&number.to_string(), "200"]).expect("room").inc();
    }
    let each = (blocks(&segment) - before) as f64 / SERIES as f64;
    // A record, a cell in each of two lanes, and a quarter more that was taken in advance.
    assert!((128.0..=128.0 * 1.26).contains(&each), "{each} bytes for a series");
}

/// The image of a registry with two families, and where its parts are, in words.
struct Parts {
    image: Vec<u8>,
    head: usize,
    /// The first words of the records of both families.
    families: [usize; 2],
    /// Those of a series of the first family, and of one of the second.
    series: [usize; 2],
}

/// Words of a family and of a series.
const TYPE: usize = 1;
const FAMILY_LENGTHS: usize = 6;
const FAMILY_AT: usize = 1;
const CELL: usize = 2;
const SERIES_LENGTHS: usize = 3;
/// Words of the head.
const CELLS_USED: usize = 8;
const FREE_CELLS: usize = 16;
const FREE_RECORDS: usize = 24;
const INDEX: usize = 128;
const ENTRIES: usize = 256;
/// The first words of a family and of a series, with one label.
const FIRST_OF_FAMILY: u64 = 3 << 32 | 6 << 16 | 1;
const FIRST_OF_SERIES: u64 = 1 << 32 | 3 << 16 | 2;

impl Parts {
    fn new() -> Parts {
        let segment = with_series(20).anonymous().expect("a segment");
        for (name, value) in [("one", "first of one"), ("two", "first of two")] {
            let family = registry(&segment).counter_family(name, "Help.", &["label"]);
            let family = family.expect("room");
            family.series(&[value]).expect("room").add(1);
            family.series(&[&value.replace("first", "later")]).expect("room").add(2);
        }
        let image = image_of(&segment);
        let find = |text: &[u8; 8], before: usize| {
            let at = image.chunks(8).position(|word| word == text).expect("the text");
            at - before
        };
        // The text of a record follows its lengths: three of a family, and one of a series.
        let families = [b"one_tota", b"two_tota"].map(|name| find(name, FAMILY_LENGTHS + 3));
        let firsts = image.chunks(8).enumerate().filter(|(_, word)| word == b"first of");
        let firsts: Vec<_> = firsts.map(|(at, _)| at - SERIES_LENGTHS - 1).collect();
        let word = |at: usize| u64::from_le_bytes(image[8 * at..8 * at + 8].try_into().expect("8"));
        // The index begins behind the waiters, and the head lies before it.
        let waiters_at = 4096 + 8 * word(5) + 64 * word(8);
        let head = (waiters_at + 64 * word(9)) as usize / 8;
        assert_eq!(word(head + CELLS_USED), 4);
        Parts { head, families, series: [firsts[0], firsts[1]], image }
    }

    fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.image[8 * at..8 * at + 8].try_into().expect("8 bytes"))
    }

    /// Returns the entry of the index that leads to a record.
    fn entry(&self, record: usize) -> usize {
        let mut entries = self.head + INDEX..self.head + INDEX + ENTRIES;
        let is_own = |&at: &usize| self.word(at) << 24 >> 30 == record as u64 / 8;
        entries.find(is_own).expect("the entry")
    }

    fn with(&self, at: usize, value: u64) -> Vec<u8> {
        let mut image = self.image.clone();
        image[8 * at..8 * at + 8].copy_from_slice(&value.to_le_bytes());
        image
    }

    /// Returns damage that costs series of the first family only, and how many.
    fn damages(&self) -> Vec<(usize, u64, usize, &'static str)> {
        let ([family, _], [series, other]) = (self.families, self.series);
        let (entry, of_family) = (self.entry(series), self.entry(family));
        let text = |text: &[u8; 8]| u64::from_le_bytes(*text);
        let beyond = |entry: usize| self.word(entry) & !((1 << 40) - 64) | ((1 << 40) - 64);
        vec![
            (family, 0, 2, "registry record"),
            (family, FIRST_OF_FAMILY - (2 << 32), 2, "registry record"),
            (family, FIRST_OF_FAMILY | u64::MAX << 32, 2, "registry record"),
            (family, FIRST_OF_FAMILY + (1 << 16), 2, "registry record"),
            (family, FIRST_OF_FAMILY | 1 << 48, 2, "registry record"),
            (family + FAMILY_LENGTHS, u64::MAX, 2, "registry record"),
            (family + FAMILY_LENGTHS + 1, (64 << 10) + 1, 2, "registry record"),
            (family + FAMILY_LENGTHS + 3, u64::MAX, 2, "registry record"),
            (family + FAMILY_LENGTHS + 3, text(b"one tota"), 2, "name of a family"),
            (family + FAMILY_LENGTHS + 3, text(b"one_totb"), 2, "name of a family"),
            (family + FAMILY_LENGTHS + 6, text(b"la\"el\0\0\0"), 2, "name of a family"),
            (family + FAMILY_LENGTHS + 2, 0, 2, "name of a family"),
            (of_family, beyond(of_family), 2, "registry record"),
            (of_family, self.word(of_family) ^ 4096, 2, "registry record"),
            (series, FIRST_OF_SERIES + (64 << 32), 1, "registry record"),
            (series, FIRST_OF_SERIES - (1 << 32), 1, "number of values"),
            (series, FIRST_OF_SERIES + (1 << 16), 1, "registry record"),
            (series, FIRST_OF_SERIES | u64::MAX << 48, 1, "registry record"),
            (series + FAMILY_AT, 0, 1, "family of a series"),
            (series + FAMILY_AT, u64::MAX, 1, "family of a series"),
            (series + FAMILY_AT, 8 * other as u64, 1, "family of a series"),
            (series + CELL, u64::MAX, 1, "cell of a series"),
            (series + CELL, 84, 1, "cell of a series"),
            (series + CELL, 4, 1, "and number 4 too"),
            (series + SERIES_LENGTHS, 1 << 40, 1, "registry record"),
            (series + SERIES_LENGTHS + 1, u64::MAX, 1, "registry record"),
            (entry, beyond(entry), 1, "registry record"),
            (entry, self.word(entry) & !63 | 5, 1, "registry entry"),
        ]
    }
}

fn damage_hides_no_other_family() {
    let parts = Parts::new();
    for (at, value, lost, _) in parts.damages() {
        let what = format!("{value:#x} at {at}");
        let segment = attach(&parts.with(at, value)).expect("a sound header");
        for scrape in [registry(&segment).scrape(), view(&segment).scrape()] {
            let scrape = scrape.unwrap_or_else(|error| panic!("{what}: {error}"));
            let damaged = scrape.damaged().len();
            assert!((1..=3).contains(&damaged), "{what}: {:?}", scrape.damaged());
            assert_eq!(scrape.samples().count(), 4 - lost, "{what}");
            let of_two = scrape.samples().filter(|sample| sample.name() == "two_total");
            assert!(of_two.map(|sample| sample.value()).eq([Some(1), Some(2)]), "{what}");
        }
        let two = registry(&segment).counter_family("two", "", &["label"]).expect("it is sound");
        assert_eq!(two.series(&["later of two"]).expect("it is sound").sum(), 2, "{what}");
        two.series(&["new"]).expect("room").inc();
    }
}

// The entry leads to the end of the area of records, of which the first few hundred bytes are used.
fn entry_beyond_the_records_takes_no_memory() {
    let parts = Parts::new();
    let entry = parts.entry(parts.series[0]);
    let at = 8 * parts.series[0] as u64 + (64 << 10);
    let moved = parts.word(entry) & !((1 << 40) - 64) | at;
    let segment = attach(&parts.with(entry, moved)).expect("a sound header");
    let file = file_of(&segment);
    let kibibytes = || file.metadata().expect("a file").blocks() / 2;
    let before = kibibytes();
    for scrape in [registry(&segment).scrape(), view(&segment).scrape()] {
        let scrape = scrape.expect("a scrape");
        assert_eq!((scrape.samples().count(), scrape.damaged().len()), (3, 1));
    }
    let two = registry(&segment).counter_family("two", "", &["label"]).expect("it is sound");
    two.series(&["new"]).expect("room").inc();
    // A copy of a segment has holes, some of which the calls have filled.
    let more = kibibytes() - before;
    assert!(more < 32, "{more} KiB");
}

fn check_finds_damage() {
    let parts = Parts::new();
    let faults = |image: &[u8]| {
        let segment = attach(image).expect("a sound header");
        let view = SegmentView::from_fd(file_of(&segment).into()).expect("a segment");
        inspect::check(&view).expect("an answer").faults
    };
    let none = faults(&parts.image);
    assert!(none.is_empty(), "{none:?}");
    let [series, other] = parts.series;
    let entry = parts.entry(series);
    let free = (parts.head + INDEX..).find(|&at| parts.word(at) == 0).expect("a free entry");
    let mut cases = parts.damages();
    cases.extend([
        (series + CELL, parts.word(other + CELL), 0, "its cell is that of"),
        (series + SERIES_LENGTHS + 1, u64::from_le_bytes(*b"later of"), 0, "have this name"),
        (series + SERIES_LENGTHS + 1, u64::from_le_bytes(*b"other of"), 0, "no search finds"),
        (free, parts.word(entry), 0, "overlaps that of"),
        (parts.head + FREE_CELLS, 1, 0, "its cell is that of"),
        (parts.head + FREE_CELLS, 5, 0, "and number 4 too"),
        (parts.head + FREE_CELLS, u64::MAX, 0, "their list is damaged"),
        (parts.head + FREE_RECORDS, 8 * series as u64, 0, "their list is damaged"),
        (parts.head + FREE_RECORDS, u64::MAX, 0, "their list is damaged"),
        (entry, parts.word(entry) ^ 1 << 63, 0, "no search finds"),
        (parts.head + CELLS_USED, u64::MAX, 0, "cells are in use"),
        (parts.head + CELLS_USED, 2, 0, "cells are in use"),
    ]);
    for (at, value, _, wanted) in cases {
        let found = faults(&parts.with(at, value));
        let is_wanted = |fault: &inspect::Fault| fault.fault.contains(wanted);
        assert!(found.iter().any(is_wanted), "{value:#x} at {at}, {wanted}: {found:?}");
    }
    // Another version can have families of other types.
    let other = attach(&parts.with(parts.families[0] + TYPE, 9)).expect("a sound header");
    let scrape = registry(&other).scrape().expect("memory");
    assert!(scrape.damaged().is_empty() && scrape.samples().count() == 2);
    let error = registry(&other).counter_family("one", "", &["label"]).expect_err("another type");
    assert!(error.to_string().contains("exists, of another type with the labels"), "{error}");
    // Hostile counts and spares cost no time, and lead nowhere.
    let hostile = [
        (CELLS_USED, u64::MAX),
        (FREE_CELLS, u64::MAX),
        (FREE_CELLS, 1 << 40),
        (FREE_RECORDS, u64::MAX),
        (FREE_RECORDS, 64),
    ];
    for (word, value) in hostile {
        let segment = attach(&parts.with(parts.head + word, value)).expect("a sound header");
        assert_eq!(registry(&segment).scrape().expect("memory").samples().count(), 4);
        let one = registry(&segment).counter_family("one", "", &["label"]).expect("it is sound");
        let made = one.series(&["new"]).map(|series| series.inc());
        made.unwrap_or_else(|error| assert_eq!(*error.kind(), SegmentErrorKind::RegistryFull));
    }
}

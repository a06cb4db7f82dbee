//! Segments in hostile files and restricted processes: clear errors, and no access outside.

use std::ffi::CString;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use thiscpu::__internal::inspect;
use thiscpu::{
    Existing, Segment, SegmentError, SegmentErrorKind, SegmentView, SharedCounters, SharedFamily,
};
use thiscpu_test_support::memory::set_limit;

use crate::common::resources::limit_address_space_to;
use crate::common::segment::{
    Place, attach, file_of, file_with, image_of, shared_words, small, small_segment,
};
use crate::common::{DEFAULT_ONLY, Random, Scenario, fork, namespace, pin, scale, scenario};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(segment_files::files_of_other_lengths_are_refused, DEFAULT_ONLY),
    scenario!(segment_files::foreign_headers_are_refused, DEFAULT_ONLY),
    scenario!(segment_files::corrupt_bytes_do_no_harm, DEFAULT_ONLY).not_quick(),
    scenario!(segment_files::random_images_do_no_harm, DEFAULT_ONLY).not_quick(),
    scenario!(segment_files::participants_go_on_when_bytes_are_corrupted, DEFAULT_ONLY),
    scenario!(segment_files::segments_without_names_keep_their_length, DEFAULT_ONLY),
    scenario!(segment_files::foreign_owners_are_refused, DEFAULT_ONLY).needs(is_root),
    scenario!(segment_files::modes_are_checked_and_set, DEFAULT_ONLY),
    scenario!(segment_files::links_and_special_files_are_refused, DEFAULT_ONLY),
    scenario!(segment_files::paths_without_a_file_are_refused, DEFAULT_ONLY),
    scenario!(segment_files::relative_paths_work, DEFAULT_ONLY),
    scenario!(segment_files::full_file_system_refuses_segments_and_objects, DEFAULT_ONLY)
        .needs(namespace::can_hide_sys),
    scenario!(segment_files::messages_fit_bad_paths, DEFAULT_ONLY),
    scenario!(segment_files::segments_work_without_proc, DEFAULT_ONLY)
        .needs(namespace::can_hide_sys),
    scenario!(segment_files::limits_on_resources_are_errors, DEFAULT_ONLY),
    scenario!(segment_files::options_out_of_range_are_refused, DEFAULT_ONLY),
];

/// Asserts that a call failed for a reason, with a message that says what to do.
#[track_caller]
fn assert_fails<R>(result: Result<R, SegmentError>, is_kind: impl Fn(&SegmentErrorKind) -> bool) {
    let Err(error) = result else { panic!("no error") };
    let message = error.to_string();
    assert!(is_kind(error.kind()), "{message}");
    assert_is_clear(&error);
}

fn assert_is_clear(error: &SegmentError) {
    let message = error.to_string();
    assert!(message.starts_with("cannot ") && message.contains("; "), "{message}");
    assert!(!message.contains("see the documentation"), "{message}");
}

#[track_caller]
fn assert_errno<R>(result: Result<R, SegmentError>, wanted: i32) {
    assert_fails(
        result,
        |kind| matches!(kind, SegmentErrorKind::System { errno, .. } if *errno == wanted),
    );
}

/// Returns a segment with a counter, a group, and the values 1000, and 1, 2 and 3.
fn used_segment() -> Segment {
    let segment = small_segment();
    fill(&segment);
    segment
}

fn fill(segment: &Segment) {
    segment.counter("counter").expect("room").add(1000);
    let group = group(segment).expect("room");
    (0..3).for_each(|n| group.add(n, n as i64 + 1));
    assert_eq!(group.sum(), [1, 2, 3]);
}

/// Returns such a segment with series and a budget, of which a living process holds units.
fn segment_with_budget() -> Segment {
    let segment = small().series(20).anonymous().expect("a segment");
    fill(&segment);
    let budget = segment.budget("budget", 10).expect("room");
    budget.try_acquire(3).expect("units are available");
    for number in NUMBERS {
        let series = family(&segment).and_then(|family| family.series(&["GET", number]));
        series.expect("room").add(1 << number.len());
    }
    segment
}

const NUMBERS: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "nine bytes and more"];

fn family(segment: &Segment) -> Result<SharedFamily, SegmentError> {
    segment.registry()?.counter_family("requests", "Requests.", &["method", "number"])
}

fn group(segment: &Segment) -> Result<SharedCounters<3>, SegmentError> {
    segment.counters("a group of counters with a long name")
}

/// Words of the header.
const FORMAT: usize = 1;
const FEATURES: usize = 2;
const SIZES: std::ops::Range<usize> = 4..10;
/// The bytes without which a file is no segment.
const HEADER_BYTES: usize = 144;

fn files_of_other_lengths_are_refused() {
    let image = image_of(&used_segment());
    let place = Place::new();
    let len = image.len();
    let edges =
        [0, 64, HEADER_BYTES, 4096, 64 << 10, 128 << 10, len / 2, len - (256 << 10), len, 2 * len];
    let lengths = edges.into_iter().flat_map(|edge| [edge.saturating_sub(1), edge, edge + 1]);
    for length in lengths.filter(|&length| length != len) {
        fs::write(&place, &image).expect("a file");
        fs::set_permissions(&place, Permissions::from_mode(0o600)).expect("a file");
        let file = File::options().write(true).open(&place).expect("a file");
        file.set_len(length as u64).expect("a length");
        let is_kind = |kind: &SegmentErrorKind| match kind {
            SegmentErrorKind::NotASegment => length < HEADER_BYTES,
            SegmentErrorKind::WrongLength { expected, found } => {
                (*expected, *found) == (len as u64, length as u64)
            }
            _ => false,
        };
        assert_fails(Segment::open(&place), is_kind);
        assert_fails(small().open_or_create(&place, Existing::Keep), is_kind);
        let copy = file_with(&image);
        copy.set_len(length as u64).expect("a length");
        assert_fails(Segment::from_fd(copy.into()), is_kind);
    }
    // All other bytes are there, but not these.
    assert_fails(attach(&vec![0; len]), |kind| *kind == SegmentErrorKind::NotASegment);
}

fn messages_fit_bad_paths() {
    let place = Place::new();
    let inside = Path::join(&place, "segment");
    let expect = |result: Result<Segment, SegmentError>, action: &str, path: &Path, end: &str| {
        let message = result.expect_err("a bad path").to_string();
        assert!(message.starts_with(&format!("cannot {action} segment {}: ", path.display())));
        assert!(message.ends_with(end), "{message}");
    };
    let into_directory =
        "; check the path: it must lead into a directory of a tmpfs, such as /dev/shm";
    let keep = |path: &Path| small().open_or_create(path, Existing::Keep);
    let replace = |path: &Path| small().open_or_create(path, Existing::Replace);
    // Nothing is there.
    expect(small().open(&place), "open", &place, "; check the path, or create the segment first");
    for result in [small().create(&inside), keep(&inside), replace(&inside)] {
        expect(result, "create", &inside, into_directory);
    }
    fs::create_dir(&place).expect("a directory");
    for result in [small().open(&place), keep(&place), replace(&place)] {
        let end = "; give the path of a file, in a directory of a tmpfs such as /dev/shm";
        expect(result, "open", &place, end);
    }
    symlink(&inside, Path::join(&place, "link")).expect("a link");
    let link = Path::join(&place, "link");
    small().create(&inside).expect("a segment");
    for result in [small().open(&link), keep(&link), replace(&link)] {
        let end = ": it is a symbolic link, or its path has a loop of them; give the path of the \
                   file itself";
        expect(result, "open", &link, end);
    }
    fs::write(&inside, "no segment").expect("a file");
    for result in [small().open(&inside), keep(&inside), replace(&inside)] {
        expect(result, "attach to", &inside, ": it is not a segment; check the path");
    }
    expect(small().create(&inside), "create", &inside, "; open it, or remove it");
    let below = Path::join(&inside, "segment");
    expect(small().open(&below), "open", &below, "; check the path");
    expect(small().create(&below), "create", &below, into_directory);
    fs::remove_dir_all(&place).expect("a directory");
}

fn with_word(image: &[u8], number: usize, value: u64) -> Vec<u8> {
    let mut image = image.to_vec();
    image[8 * number..8 * number + 8].copy_from_slice(&value.to_le_bytes());
    image
}

fn word(image: &[u8], number: usize) -> u64 {
    u64::from_le_bytes(image[8 * number..8 * number + 8].try_into().expect("8 bytes"))
}

fn foreign_headers_are_refused() {
    let image = image_of(&used_segment());
    let foreign = with_word(&image, 0, word(&image, 0).swap_bytes());
    assert_fails(attach(&foreign), |kind| *kind == SegmentErrorKind::ForeignByteOrder);
    for found in [0, 2, u64::MAX] {
        let other = SegmentErrorKind::OtherFormat { found, known: 1 };
        assert_fails(attach(&with_word(&image, FORMAT, found)), |kind| *kind == other);
    }
    for unknown in [2, 1 << 63] {
        let kind_of = SegmentErrorKind::UnknownFeatures { unknown };
        assert_fails(attach(&with_word(&image, FEATURES, unknown)), |kind| *kind == kind_of);
    }
    for number in SIZES {
        let size = word(&image, number);
        for value in [0, size / 2 - 1, size + 1, size + (64 << 10), 1 << 50, u64::MAX] {
            // Some are sizes of another segment.
            let is_damaged = |kind: &_| match kind {
                SegmentErrorKind::Damaged { .. } => true,
                SegmentErrorKind::WrongLength { found, .. } => *found == image.len() as u64,
                _ => false,
            };
            assert_fails(attach(&with_word(&image, number, value)), is_damaged);
        }
    }
}

/// Reserves address space that nobody can access.
fn guard(bytes: usize) -> usize {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address that the kernel chooses.
    let address = unsafe { libc::mmap(null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
    assert_ne!(address, libc::MAP_FAILED, "no address space");
    address as usize
}

fn free(guards: [usize; 2], bytes: usize) {
    // SAFETY: both are from `guard`, and nobody accesses them.
    guards.into_iter().for_each(|guard| unsafe {
        libc::munmap(guard as *mut _, bytes);
    });
}

/// Attaches to an image between two guards, into which each store outside the segment leads.
///
/// Returns the guards too.
fn attach_guarded(image: &[u8]) -> Result<(Segment, [usize; 2]), SegmentError> {
    // The kernel takes the highest gap that is long enough. Gaps elsewhere are used up at first.
    for _ in 0..100 {
        let above = guard(image.len());
        let segment = match attach(image) {
            Ok(segment) => segment,
            Err(error) => {
                free([above, above], image.len());
                return Err(error);
            }
        };
        let below = guard(image.len());
        if above.wrapping_sub(below) == 2 * image.len() {
            return Ok((segment, [above, below]));
        }
        // It stays in that gap.
        std::mem::forget(segment);
    }
    panic!("the segment is between no guards");
}

/// Uses all of a segment, and returns whether every call succeeded.
fn use_all(segment: &Segment) -> bool {
    let mut errors = Vec::new();
    let mut note = |error| errors.push(error);
    for name in ["counter", "another"] {
        match segment.counter(name) {
            Err(error) => note(error),
            Ok(counter) => {
                counter.add(3);
                counter.add(1 << 40);
                counter.sum();
                // Damaged records can put banks in the same place, so the value is not compared.
                counter.add(-1);
                counter.sum();
            }
        }
    }
    match group(segment) {
        Err(error) => note(error),
        Ok(group) => {
            group.add(2, 1);
            group.add(1, -1 << 33);
            group.sum();
            group.add(0, 1);
            group.sum();
        }
    }
    match segment.budget("budget", 10) {
        Err(error) => note(error),
        // A damaged budget may have any number of units, and the slot may be lost.
        Ok(budget) => {
            if budget.try_acquire(2).is_ok() {
                budget.release(2);
            }
            let _ = budget.try_acquire(20);
            let _ = budget.lease(1).map(drop);
            let _ = budget.acquire_timeout(20, Duration::ZERO);
            budget.set_limit(12);
            let _ = (budget.available(), budget.waiters());
            budget.close();
        }
    }
    if let Err(error) = use_registry(segment)
        && *error.kind() != SegmentErrorKind::NoRegistry
    {
        note(error);
    }
    segment.counters::<2>("counter").map(drop).unwrap_or_else(&mut note);
    segment.objects().flat_map(Result::err).for_each(|error| assert_is_clear(&error));
    errors.iter().for_each(assert_is_clear);
    errors.len() == 1
}

/// Uses all of a registry, in which names can be hidden or damaged.
fn use_registry(segment: &Segment) -> Result<(), SegmentError> {
    let registry = segment.registry()?;
    let found = family(segment).and_then(|family| {
        for number in ["0", "5", "nine bytes and more", "new", "another"] {
            let series = family.series(&["GET", number])?;
            series.add(3);
            series.add(1 << 40);
            series.sum();
        }
        family.find(&["PUT", "0"]).map(drop)
    });
    let other = registry.counter_family("others", "", &["a"]).and_then(|it| it.series(&["b"]));
    let file = file_of(segment);
    let view = SegmentView::from_fd(file.into()).and_then(|view| {
        inspect::check(&view)?;
        view.registry()
    });
    let view = view?;
    view.usage()?;
    for scrape in [registry.scrape()?, view.scrape()?] {
        scrape.samples().for_each(|sample| assert!(sample.labels().count() <= 64));
        scrape.damaged().iter().for_each(assert_is_clear);
    }
    view.find("requests", &["GET", "5"])?;
    found.and(other.map(drop))
}

/// Attaches to changed images in a child, uses all of each, and returns how many were used.
///
/// A change is a list of words and their values.
///
/// # Panics
///
/// If the child crashes, hangs, or gets an error that is not clear.
fn use_changed(image: &[u8], changes: impl Iterator<Item = Vec<(usize, u64)>>) -> u64 {
    let [current, used] = [0, 1].map(|at| &shared_words()[at]);
    let child = || {
        let mut changed = image.to_vec();
        for (number, change) in changes.enumerate() {
            current.store(number as u64, SeqCst);
            for &(at, value) in &change {
                changed[8 * at..8 * at + 8].copy_from_slice(&value.to_le_bytes());
            }
            match attach_guarded(&changed) {
                Err(error) => assert_is_clear(&error),
                Ok((segment, guards)) => {
                    if number % 16 == 0 {
                        pin::pin(number / 16);
                    }
                    used.fetch_add(u64::from(use_all(&segment)), SeqCst);
                    drop(segment);
                    free(guards, image.len());
                }
            }
            for (at, _) in change {
                changed[8 * at..8 * at + 8].copy_from_slice(&image[8 * at..8 * at + 8]);
            }
        }
    };
    fork::run(child).unwrap_or_else(|error| panic!("image {}: {error}", current.load(SeqCst)));
    used.load(SeqCst)
}

/// Returns where the bytes of a segment are that are not zero, and all of the header.
fn interesting_bytes(image: &[u8]) -> Vec<usize> {
    let is_used = |&at: &usize| at < 192 || image[at & !7..(at & !7) + 8] != [0; 8];
    (0..image.len()).filter(is_used).collect()
}

fn corrupt_bytes_do_no_harm() {
    let image = image_of(&segment_with_budget());
    let changes = interesting_bytes(&image).into_iter().flat_map(|at| {
        let value = word(&image, at / 8);
        [0xff, 1, 0x10, 0x80].map(|bits: u64| vec![(at / 8, value ^ bits << (8 * (at % 8)))])
    });
    assert!(use_changed(&image, changes.step_by(if scale::is_quick() { 7 } else { 1 })) > 0);
}

/// Returns a value that a field may have been meant to have, or not at all.
fn hostile_value(random: &mut Random, len: u64) -> u64 {
    let near =
        |value: u64, random: &mut Random| value.wrapping_add(random.below(5)).wrapping_sub(2);
    match random.below(6) {
        0 => random.next(),
        1 => random.next() >> random.below(64),
        2 => near(1 << random.below(64), random),
        3 => near(random.below(len / 4096) * 4096, random),
        4 => random.below(len) & !15,
        _ => [0, 1, len, u64::MAX, i64::MAX as u64][random.below(5) as usize],
    }
}

fn random_images_do_no_harm() {
    let image = image_of(&segment_with_budget());
    let places = interesting_bytes(&image);
    let mut random = Random::new(34);
    let changes = (0..scale::rounds(10_000)).map(|_| {
        let change = |random: &mut Random| {
            let at = match random.below(8) {
                0 => 128 + random.below(32) as usize,
                _ => places[random.below(places.len() as u64) as usize],
            };
            (at / 8, hostile_value(random, image.len() as u64))
        };
        (0..1 + random.below(4)).map(|_| change(&mut random)).collect()
    });
    assert!(use_changed(&image, changes) > 0);
}

// Handles from before stay right. A later search ends with an error, or with something else.
fn participants_go_on_when_bytes_are_corrupted() {
    let place = Place::new();
    let segment = small().create(&place).expect("a segment");
    let counter = segment.counter("counter").expect("room");
    let image = image_of(&segment);
    let lanes_at = image.len() - 2 * word(&image, 7) as usize;
    // A counter's epoch, and its lanes, are its value.
    let epoch_at = |at: usize| at >= 64 << 10 && word(&image, at / 8) == 2;
    let places = interesting_bytes(&image);
    let places = places.into_iter().filter(|&at| at < lanes_at && !epoch_at(at));
    let file = file_of(&segment);
    let mut sum = 0;
    for at in places.step_by(if scale::is_quick() { 7 } else { 1 }) {
        file.write_all_at(&[!image[at]], at as u64).expect("a byte");
        for found in [segment.counter("counter").map(drop), segment.counter("new").map(drop)] {
            found.unwrap_or_else(|error| assert_is_clear(&error));
        }
        counter.add(7);
        counter.add(70_000);
        sum += 70_007;
        assert_eq!(counter.sum(), sum, "byte {at}");
        file.write_all_at(&image[..lanes_at], 0).expect("the bytes");
        // The epoch goes on.
        assert_eq!(counter.sum(), sum, "byte {at}");
    }
}

fn segments_without_names_keep_their_length() {
    let segment = used_segment();
    let file = file_of(&segment);
    let len = file.metadata().expect("a file").len();
    for other in [0, len - 1, len + 1] {
        let error = file.set_len(other).expect_err("a sealed length");
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
    }
    assert!(use_all(&segment));
}

fn is_root() -> Result<(), String> {
    // SAFETY: the call has no preconditions.
    if unsafe { libc::geteuid() } == 0 { Ok(()) } else { Err("needs root".into()) }
}

fn foreign_owners_are_refused() {
    const OWNER: u32 = 12_345;
    let place = Place::new();
    drop(small().create(&place).expect("a segment"));
    std::os::unix::fs::chown(&place, Some(OWNER), None).expect("root");
    let foreign = SegmentErrorKind::ForeignOwner { owner: OWNER };
    assert_fails(Segment::open(&place), |kind| *kind == foreign);
    assert_fails(small().open_or_create(&place, Existing::Keep), |kind| *kind == foreign);
    small().owner(OWNER).open(&place).expect("a trusted owner");
    // Everybody trusts files of root.
    std::os::unix::fs::chown(&place, Some(0), None).expect("root");
    fs::set_permissions(&place, Permissions::from_mode(0o666)).expect("root");
    fork::run(|| {
        // SAFETY: the call takes a number. This child uses nothing that belongs to root.
        assert_eq!(unsafe { libc::setuid(OWNER) }, 0);
        small().mode(0o666).open(&place).expect("root's file");
    })
    .expect("the child");
}

fn modes_are_checked_and_set() {
    let place = Place::new();
    for mask in [0, 0o777] {
        // SAFETY: the call takes a number.
        unsafe { libc::umask(mask) };
        for mode in [0o600, 0o660, 0o640] {
            small().mode(mode).create(&place).expect("a segment");
            let found = fs::metadata(&place).expect("a file").mode();
            assert_eq!(found & 0o7777, mode);
            small().mode(mode).open(&place).expect("a segment");
            fs::remove_file(&place).expect("a file");
        }
    }
    drop(small().create(&place).expect("a segment"));
    for (mode, allowed) in
        [(0o620, 0o600), (0o602, 0o600), (0o666, 0o600), (0o666, 0o660), (0o602, 0o620)]
    {
        fs::set_permissions(&place, Permissions::from_mode(mode)).expect("a file");
        let refused = SegmentErrorKind::WritableByOthers { mode };
        assert_fails(small().mode(allowed).open(&place), |kind| *kind == refused);
        small().mode(mode).open(&place).expect("an allowed mode");
    }
}

fn links_and_special_files_are_refused() {
    let (place, link) = (Place::new(), Place::new());
    drop(small().create(&place).expect("a segment"));
    symlink(&place, &link).expect("a link");
    assert_errno(Segment::open(&link), libc::ELOOP);
    assert_errno(small().open_or_create(&link, Existing::Keep), libc::ELOOP);
    assert_errno(Segment::create(&link), libc::EEXIST);
    assert_errno(small().open_or_create(&link, Existing::Replace), libc::ELOOP);
    Segment::open(&place).expect("the segment is still there");

    let directory = Place::new();
    fs::create_dir(&directory).expect("a directory");
    assert_errno(Segment::open(&directory), libc::EISDIR);
    assert_errno(Segment::create(&directory), libc::EEXIST);
    assert_errno(small().open_or_create(&directory, Existing::Replace), libc::EISDIR);

    let pipe = Place::new();
    let name = CString::new(pipe.as_os_str().as_bytes()).expect("a path");
    // SAFETY: the path ends with a zero byte.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    for special in [&*pipe, Path::new("/dev/null")] {
        assert_fails(small().mode(0o777).open(special), |kind| {
            *kind == SegmentErrorKind::NotASegment
        });
    }
    let [from, _to] = pipe_ends();
    assert_fails(Segment::from_fd(from.into()), |kind| *kind == SegmentErrorKind::NotASegment);
    let read_only = File::open(&place).expect("a file");
    assert_errno(Segment::from_fd(read_only.into()), libc::EACCES);
}

fn pipe_ends() -> [File; 2] {
    use std::os::fd::FromRawFd as _;
    let mut ends = [-1; 2];
    // SAFETY: the array has room for two descriptors.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    // SAFETY: the call has just made both descriptors.
    ends.map(|fd| unsafe { File::from_raw_fd(fd) })
}

/// The ways to a named segment.
type Way = fn(&Path) -> Result<Segment, SegmentError>;
const WAYS: [Way; 4] = [
    |path| Segment::open(path),
    |path| Segment::create(path),
    |path| small().open_or_create(path, Existing::Keep),
    |path| small().open_or_create(path, Existing::Replace),
];

fn paths_without_a_file_are_refused() {
    let place = Place::new();
    let in_missing = place.join("name");
    assert_errno(Segment::open(&place), libc::ENOENT);
    for way in WAYS {
        assert_errno(way(&in_missing), libc::ENOENT);
        assert_errno(way(Path::new("")), libc::ENOENT);
        assert_errno(way(Path::new("/dev/shm/a\0b")), libc::EINVAL);
        let long = place.with_file_name("x".repeat(300));
        assert_errno(way(&long), libc::ENAMETOOLONG);
    }
    fs::write(&place, "no directory").expect("a file");
    for way in WAYS {
        assert_errno(way(&in_missing), libc::ENOTDIR);
    }
    assert_eq!(fs::read(&place).expect("the file"), b"no directory");
}

fn relative_paths_work() {
    let place = Place::new();
    let name = Path::new(place.file_name().expect("a name"));
    std::env::set_current_dir(place.parent().expect("a directory")).expect("a directory");
    let segment = small().create(name).expect("a segment");
    segment.counter("counter").expect("room").inc();
    let again = Segment::open(&place).expect("a segment");
    assert_eq!(again.counter("counter").expect("the name").sum(), 1);
    assert_eq!(segment.path(), Some(name));
}

fn full_file_system_refuses_segments_and_objects() {
    namespace::mount_tmpfs(c"/dev/shm", c"size=512k").expect("a namespace");
    let (place, filler) = (Place::new(), Place::new());
    fs::write(&filler, [1; 480 << 10]).expect("room");
    assert_errno(small().create(&place), libc::ENOSPC);
    assert!(!place.exists());
    fs::write(&filler, [1; 300 << 10]).expect("room");
    let segment = small().create(&place).expect("a segment");
    let counter = segment.counter("counter").expect("room");
    // All pages of a group of this size are touched below.
    let fill = |name| {
        let large = segment.counters::<4096>(name)?;
        (0..4096).for_each(|n| large.add(n, 1));
        assert_eq!(large.sum(), [1; 4096]);
        Ok(())
    };
    assert_errno(fill("large"), libc::ENOSPC);
    counter.add(7);
    assert_eq!(counter.sum(), 7);
    fs::remove_file(&filler).expect("the file");
    fill("large").expect("room");
    assert_eq!(counter.sum(), 7);
}

// Without `/proc`, a file gets its name in another way, which old kernels allow to root only.
fn segments_work_without_proc() {
    namespace::mount_tmpfs(c"/proc", c"").expect("a namespace");
    assert!(!Path::new("/proc/self").exists());
    let place = Place::new();
    match small().create(&place) {
        Err(error) => assert!(!place.exists(), "{error}"),
        Ok(segment) => {
            segment.counter("counter").expect("room").inc();
            let again = Segment::open(&place).expect("a segment");
            assert_eq!(again.counter("counter").expect("the name").sum(), 1);
        }
    }
    used_segment();
}

fn limits_on_resources_are_errors() {
    let (place, new) = (Place::new(), Place::new());
    let segment = small().create(&place).expect("a segment");
    let counter = segment.counter("counter").expect("room");
    let assert_all_fail = |errno, opens: bool| {
        assert_errno(small().create(&new), errno);
        assert_errno(small().open_or_create(&new, Existing::Keep), errno);
        assert_errno(small().anonymous(), errno);
        match opens {
            true => drop(Segment::open(&place).expect("a segment")),
            false => assert_errno(Segment::open(&place), errno),
        }
        assert!(!new.exists());
        counter.inc();
    };
    let limited = |resource, limit| set_limit(resource, limit).expect("a limit");
    let before = limited(libc::RLIMIT_FSIZE, 64 << 10);
    assert_all_fail(libc::EFBIG, true);
    segment.counters::<100>("growth").expect("room within the file");
    limited(libc::RLIMIT_FSIZE, before);
    let before = limited(libc::RLIMIT_NOFILE, 0);
    assert_all_fail(libc::EMFILE, false);
    segment.counters::<100>("more growth").expect("the open descriptor");
    limited(libc::RLIMIT_NOFILE, before);
    let limit = limit_address_space_to(512 << 10);
    assert_all_fail(libc::ENOMEM, false);
    drop(limit);
    assert_eq!(counter.sum(), 3);
    small().create(&new).expect("no limit is left");
}

fn options_out_of_range_are_refused() {
    fn is_named(kind: &SegmentErrorKind, name: &str) -> bool {
        matches!(kind, SegmentErrorKind::OptionOutOfRange { option, .. } if *option == name)
    }
    for lanes in [0, 16_385, u32::MAX] {
        assert_fails(small().lanes(lanes).anonymous(), |kind| is_named(kind, "lanes"));
    }
    for bytes in [0, (256 << 10) - 1, (1 << 40) + 1, u64::MAX] {
        assert_fails(small().max_bytes(bytes).anonymous(), |kind| is_named(kind, "max_bytes"));
    }
    for (lanes, bytes) in
        [(1, 256 << 10), (1, 1 << 20), (4096, 1 << 30), (1, 1 << 30), (64, 1 << 30)]
    {
        let segment = small().lanes(lanes).max_bytes(bytes).anonymous().expect("a segment");
        assert_eq!(segment.lanes(), lanes);
        let counter = segment.counter("counter").expect("room");
        counter.inc();
        assert_eq!(counter.sum(), 1);
    }
}

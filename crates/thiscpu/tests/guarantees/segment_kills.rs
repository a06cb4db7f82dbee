//! Segments whose processes are killed or stopped between any two instructions.
//!
//! In most scenarios nobody is killed: after each instruction of an operation a signal handler
//! keeps the segment's bytes, if they have changed. These are what the death of the process would
//! leave, and each is recovered in a copy.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, OnceLock};

use thiscpu::{Existing, Segment, SharedCounter, SharedCounters};

use crate::common::segment::{Place, attach, file_of, image_of, small, smallest};
use crate::common::{
    DEFAULT_ONLY, Scenario, at_each_step, at_every_nth_step, at_kills, can_single_step, fork, pin,
    scale, scenario, step_through,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(segment_kills::killed_adds_have_happened_or_not, DEFAULT_ONLY).needs(can_single_step),
    scenario!(segment_kills::killed_sums_change_no_value, DEFAULT_ONLY)
        .needs(can_single_step)
        .not_quick(),
    scenario!(segment_kills::killed_makers_leave_the_name_free, DEFAULT_ONLY)
        .needs(can_single_step),
    scenario!(segment_kills::recoveries_may_be_killed, DEFAULT_ONLY)
        .needs(can_single_step)
        .not_quick(),
    scenario!(segment_kills::stopped_operations_go_on, DEFAULT_ONLY)
        .needs(can_single_step)
        .not_quick(),
    scenario!(segment_kills::stopped_makers_go_on, DEFAULT_ONLY).needs(can_single_step).not_quick(),
    scenario!(segment_kills::processes_go_on_when_one_is_killed, DEFAULT_ONLY)
        .needs(fork::can_trace),
    scenario!(segment_kills::killed_creators_leave_no_half_segment, DEFAULT_ONLY)
        .needs(fork::can_trace)
        .not_quick(),
];

const NAME: &str = "counter";

pub(crate) fn counter(segment: &Segment) -> SharedCounter {
    segment.counter(NAME).expect("room")
}

pub(crate) fn group(segment: &Segment) -> SharedCounters<3> {
    segment.counters("group").expect("room")
}

/// Images of a segment that is stepped through, each different from the one before.
struct Recorder {
    segment: *const u8,
    len: usize,
    images: *mut u8,
    taken: AtomicUsize,
}

/// How many images a recorder can hold.
const IMAGES_MAX: usize = 400;

/// The recorder of the handler, or null.
static RECORDER: AtomicPtr<Recorder> = AtomicPtr::new(std::ptr::null_mut());

/// Keeps an image if the segment has changed; runs in the signal handler.
fn record() {
    let recorder = RECORDER.load(SeqCst);
    // SAFETY: `images_of` has stored a recorder that lives until the steps have ended. Its segment
    // and its images are mapped, with room for `IMAGES_MAX` images. Only this handler accesses the
    // images meanwhile, and the thread that changes the segment is the interrupted one.
    unsafe {
        let Recorder { segment, len, images, ref taken } = *recorder;
        let count = taken.load(SeqCst);
        // Objects are at the beginnings of areas, which begin at multiples of 64 KiB. The first
        // area also has the index, slots, waiters and the registry.
        let differs = |at| {
            let last = images.add((count - 1) * len + at);
            let used = if at == 0 { 48 << 10 } else { 16 << 10 };
            libc::memcmp(segment.add(at).cast(), last.cast(), used) != 0
        };
        let is_changed = count == 0 || (0..len).step_by(64 << 10).any(differs);
        if is_changed && count < IMAGES_MAX {
            images.add(count * len).copy_from_nonoverlapping(segment, len);
            taken.store(count + 1, SeqCst);
        }
    }
}

fn map(len: usize, flags: i32, fd: i32) -> *mut u8 {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address that the kernel chooses.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, fd, 0) };
    assert_ne!(address, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    address.cast()
}

/// Steps through `op`, and returns the distinct images of the segment in their order.
///
/// The first is that before `op`, and the last that after it.
pub(crate) fn images_of(segment: &Segment, op: impl FnOnce()) -> Vec<Vec<u8>> {
    images_while(segment, |record| step_through(op, record))
}

/// Returns the distinct images of a segment, taken at each call of the function for `steps`.
pub(crate) fn images_while(segment: &Segment, steps: impl FnOnce(fn())) -> Vec<Vec<u8>> {
    use std::os::fd::AsRawFd as _;
    let file = file_of(segment);
    let len = file.metadata().expect("a file").len() as usize;
    let reserved = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let mut recorder = Recorder {
        segment: map(len, libc::MAP_SHARED, file.as_raw_fd()),
        len,
        images: map(IMAGES_MAX * len, reserved, -1),
        taken: AtomicUsize::new(0),
    };
    RECORDER.store(&raw mut recorder, SeqCst);
    record();
    steps(record);
    record();
    let Recorder { images, taken, .. } = recorder;
    let taken = taken.into_inner();
    assert!(taken < IMAGES_MAX, "too many images");
    // SAFETY: `record` has written that many images.
    let bytes = unsafe { std::slice::from_raw_parts(images, taken * len) };
    let images: Vec<_> = bytes.chunks(len).map(<[u8]>::to_vec).collect();
    // SAFETY: both are mappings of this function, and nothing refers to them any more.
    unsafe {
        libc::munmap(bytes.as_ptr().cast_mut().cast(), IMAGES_MAX * len);
        libc::munmap(recorder.segment.cast_mut().cast(), len);
    }
    assert!(images.last() == Some(&image_of(segment)), "a change was not seen");
    images
}

/// Uses all of a segment that a killed process has left; the counter has one of these values.
pub(crate) fn assert_usable(image: &[u8], values: &[i64], what: &str) {
    let segment = attach(image).unwrap_or_else(|error| panic!("{what}: {error}"));
    let counter = counter(&segment);
    let sum = counter.sum();
    assert!(values.contains(&sum), "{what}: {sum} is none of {values:?}");
    for nth in 0..2 {
        pin::pin(nth);
        counter.add(3);
        counter.add(1 << 20);
    }
    let added = sum.wrapping_add(2 * (3 + (1 << 20)));
    assert_eq!((counter.sum(), counter.sum()), (added, added), "{what}");
    let group = group(&segment);
    let before = group.sum();
    group.add(2, 9);
    assert_eq!(group.sum(), [before[0], before[1], before[2] + 9], "{what}");
    segment.counter("another").expect("room").inc();
    assert_eq!(segment.counter("another").expect("the name").sum(), 1, "{what}");
}

/// Brings a counter into a state.
type ToState = fn(&SharedCounter);

/// The states that a counter may be in before an operation.
const STATES: [(&str, ToState); 4] = [
    ("open", |_| ()),
    ("sealed", |counter| _ = counter.sum()),
    ("sealed twice", |counter| _ = (counter.sum(), counter.sum())),
    ("saved", |counter| counter.add(1 << 20)),
];

/// Runs `body` in each state, and on each of two CPUs.
fn in_states(body: impl Fn(&Segment, &SharedCounter, &str)) {
    for (state, to_state) in STATES {
        for nth in 0..2 {
            pin::pin(nth);
            let segment = smallest().anonymous().expect("a segment");
            let counter = counter(&segment);
            group(&segment).add(1, 5);
            counter.add(1000);
            to_state(&counter);
            body(&segment, &counter, state);
        }
    }
}

fn killed_adds_have_happened_or_not() {
    in_states(|segment, counter, state| {
        for n in [1, -7, 1 << 20, i64::MIN] {
            let before = counter.sum();
            let after = before.wrapping_add(n);
            // The second add of a small amount finds an open bank.
            for (before, after) in [(before, after), (after, after.wrapping_add(n))] {
                let images = images_of(segment, || counter.add(n));
                assert!(images.len() >= 2, "no image of an add");
                let mut seen = BTreeSet::new();
                for image in &images {
                    assert_usable(image, &[before, after], &format!("{state}, add of {n}"));
                    let copy = attach(image).expect("a copy");
                    seen.insert(self::counter(&copy).sum());
                }
                assert_eq!(seen, BTreeSet::from([before, after]));
                assert_usable(&images[images.len() - 1], &[after], state);
            }
        }
    });
}

fn killed_sums_change_no_value() {
    in_states(|segment, counter, state| {
        let value = counter.sum();
        for n in [0, 5] {
            counter.add(n);
            let images = images_of(segment, || assert_eq!(counter.sum(), value + n));
            // At least the epoch and both lanes of one bank.
            assert!(images.len() >= 4, "{} images of a sum", images.len());
            for image in images {
                assert_usable(&image, &[value + n], &format!("{state}, sum"));
            }
            counter.add(-n);
        }
        group(segment).add(0, 4);
        for image in images_of(segment, || assert_eq!(group(segment).sum()[..2], [4, 5])) {
            let copy = attach(&image).expect("a copy");
            assert_eq!(group(&copy).sum(), [4, 5, 0], "{state}, sum of a group");
        }
        group(segment).add(0, -4);
    });
}

fn killed_makers_leave_the_name_free() {
    // The segment has to grow for the second name.
    for made_before in [&[][..], &["x"], &["x", "y"]] {
        let segment = smallest().anonymous().expect("a segment");
        counter(&segment).add(1000);
        for name in made_before {
            segment.counters::<100>(name).expect("room");
        }
        let images = images_of(&segment, || {
            segment.counters::<3>("group").expect("room").add(1, 6);
        });
        assert!(images.len() >= 6, "{} images of a new name", images.len());
        for image in images {
            assert_usable(&image, &[1000], "a new name");
            let copy = attach(&image).expect("a copy");
            let sum = group(&copy).sum();
            assert!(sum == [0; 3] || sum == [0, 6, 0], "{sum:?}");
        }
    }
}

// Whoever goes on with a killed process's segment may be killed too.
fn recoveries_may_be_killed() {
    pin::pin(0);
    let segment = smallest().anonymous().expect("a segment");
    let counter = counter(&segment);
    group(&segment);
    counter.add(1000);
    let mut distinct = BTreeSet::new();
    let first = images_of(&segment, || counter.add(1 << 20));
    let second = images_of(&segment, || _ = counter.sum());
    let both = (first.len() + second.len(), first.into_iter().chain(second));
    for image in both.1 {
        let copy = attach(&image).expect("a copy");
        let (handle, other) = (self::counter(&copy), pin::cpus().len() - 1);
        let value = attach(&image).map(|copy| self::counter(&copy).sum()).expect("a copy");
        pin::pin(other);
        let recovered = images_of(&copy, || {
            handle.add(1);
            assert_eq!(handle.sum(), value + 1);
        });
        for image in recovered {
            assert_usable(&image, &[value, value + 1], "a recovery");
            distinct.insert(image);
        }
    }
    assert!(distinct.len() > both.0, "{} images of {} recoveries", distinct.len(), both.0);
}

/// Returns two sets of handles of one segment, as two processes have, for signal handlers.
fn shared() -> &'static [(SharedCounter, SharedCounters<3>); 2] {
    static SHARED: OnceLock<[(SharedCounter, SharedCounters<3>); 2]> = OnceLock::new();
    SHARED.get_or_init(|| {
        let segment = smallest().anonymous().expect("a segment");
        let other = Segment::from_fd(file_of(&segment).into()).expect("a segment");
        [segment, other].map(|segment| (counter(&segment), group(&segment)))
    })
}

/// The change by [`disturb`].
const DISTURBANCE: i64 = 96 - 32 + 32 * 50_000;

/// Does 200 operations on the other mapping; at some stops, half of them on another CPU.
fn disturb() {
    static STOPS: AtomicUsize = AtomicUsize::new(0);
    // Another thread may have that CPU for a while.
    let moves = STOPS.fetch_add(1, SeqCst).is_multiple_of(32);
    let (counter, group) = &shared()[1];
    for round in 0..32 {
        if moves && round == 16 {
            pin::pin(1);
        }
        counter.add(3);
        group.add(0, 1);
        counter.add(50_000);
        counter.add(-1);
        group.add(1, 1);
        if round % 3 != 2 {
            std::hint::black_box(counter.sum());
            group.snapshot_into(&mut [0; 3]);
        }
    }
    if moves {
        pin::pin(0);
    }
}

fn stopped_operations_go_on() {
    type Op = fn() -> Option<i64>;
    let ops: [(&str, i64, Op); 4] = [
        ("add", 1, || {
            shared()[0].0.add(1);
            None
        }),
        ("large add", 1 << 20, || {
            shared()[0].0.add(1 << 20);
            None
        }),
        ("sum", 0, || Some(shared()[0].0.sum())),
        ("group's sum", 0, || {
            let [first, second, _] = shared()[0].1.sum();
            assert!(first == second, "{first}, {second}");
            None
        }),
    ];
    pin::pin(0);
    let expected = Mutex::new(shared()[0].0.sum());
    for (what, own, op) in ops {
        let check = |steps, reached, sum: Option<i64>| {
            let mut expected = expected.lock().expect("no panic");
            let before = *expected;
            *expected += own + if reached { DISTURBANCE } else { 0 };
            if let Some(sum) = sum {
                assert!(sum == before || sum == *expected, "{what}, stopped after {steps}: {sum}");
            }
            assert_eq!(shared()[1].0.sum(), *expected, "{what}, stopped after {steps}");
        };
        let stops = at_each_step(op, disturb, check);
        assert!(stops > 100, "{what}: {stops} stops");
    }
}

/// Two mappings of one segment, names, and the number of the current one.
struct Makers {
    segments: [Segment; 2],
    names: Vec<String>,
    current: AtomicUsize,
}

impl Makers {
    fn get() -> &'static Makers {
        static MAKERS: OnceLock<Makers> = OnceLock::new();
        MAKERS.get_or_init(|| {
            let segment = small().max_bytes(256 << 20).anonymous().expect("a segment");
            let other = Segment::from_fd(file_of(&segment).into()).expect("a segment");
            Makers {
                segments: [segment, other],
                names: (0..20_000).map(|n| format!("the long name of a group {n}")).collect(),
                current: AtomicUsize::new(0),
            }
        })
    }

    /// Makes or finds the group of the current name; allocates nothing on the heap.
    fn make(&self, mapping: usize) -> SharedCounters<3> {
        let name = &self.names[self.current.load(SeqCst)];
        self.segments[mapping].counters(name).expect("room")
    }
}

// The others make the very name, and others that take the memory behind it.
fn stopped_makers_go_on() {
    let makers = Makers::get();
    let disturb = || {
        let makers = Makers::get();
        makers.make(1).add(1, 1);
        let others = &makers.names[makers.names.len() - 20..];
        for name in others {
            makers.segments[1].counters::<3>(name).expect("room").add(2, 1);
        }
    };
    let op = || {
        let made = makers.make(0);
        made.add(1, 1);
        made
    };
    let check = |steps, reached, made: SharedCounters<3>| {
        let adds = 1 + i64::from(reached);
        for group in [made, makers.make(0), makers.make(1)] {
            assert_eq!(group.sum(), [0, adds, 0], "stopped after {steps}");
        }
        makers.current.fetch_add(1, SeqCst);
    };
    let stops = at_every_nth_step(if scale::is_quick() { 41 } else { 11 }, op, disturb, check);
    assert!(stops > 50, "{stops} stops");
}

/// Returns the distance of the instructions at which children are killed.
pub(crate) fn kill_distance(usual: u64) -> u64 {
    usual * u64::from(scale::factor()) * if scale::is_quick() { 8 } else { 1 }
}

fn processes_go_on_when_one_is_killed() {
    let segment = smallest().anonymous().expect("a segment");
    let counter = counter(&segment);
    counter.inc();
    let value = Mutex::new(1);
    let op = || {
        counter.add(1);
        std::hint::black_box(counter.sum());
        counter.add(1 << 20);
        std::hint::black_box(counter.sum());
    };
    let names = AtomicUsize::new(0);
    let kills = at_kills(kill_distance(17), op, |steps| {
        let mut value = value.lock().expect("no panic");
        let sum = counter.sum();
        let added = sum - *value;
        assert!([0, 1, 1 + (1 << 20)].contains(&added), "killed after {steps}: {added}");
        *value = sum + 5;
        counter.add(5);
        let number = names.fetch_add(1, SeqCst) % 100;
        segment.counter(&format!("name {number}")).expect("room").inc();
    });
    assert!(kills > 3, "{kills} kills");
}

fn killed_creators_leave_no_half_segment() {
    let place = Place::new();
    let op = || {
        let segment = small().open_or_create(&place, Existing::Replace).expect("a segment");
        counter(&segment).inc();
    };
    let kills = at_kills(kill_distance(397), op, |steps| {
        match Segment::open(&place) {
            Err(error) => assert!(error.to_string().contains("No such file"), "{steps}: {error}"),
            Ok(segment) => assert!([0, 1].contains(&counter(&segment).sum()), "{steps}"),
        }
        small().open_or_create(&place, Existing::Keep).expect("a segment");
        small().open_or_create(&place, Existing::Replace).expect("a segment");
    });
    assert!(kills > 3, "{kills} kills");
}

//! Segments in one process: names, amounts, handles, signal handlers and lost descriptors.

use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use thiscpu::{Segment, SegmentErrorKind, SharedCounter, SharedCounters};

use crate::common::segment::{Place, attach, file_of, file_with, image_of, small, small_segment};
use crate::common::{
    DEFAULT_ONLY, Random, Scenario, TIERS, TIERS_AND_SANDBOXES, at_each_step, can_single_step,
    errno, pin, scale, scenario, signal, together, wrapping_sum,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(segment::counters_add_exactly, TIERS_AND_SANDBOXES),
    scenario!(segment::counters_add_all_amounts, TIERS),
    scenario!(segment::counter_saves_a_large_delta, DEFAULT_ONLY),
    scenario!(segment::invalid_names_are_refused, DEFAULT_ONLY),
    scenario!(segment::names_lead_to_their_own_counters, DEFAULT_ONLY),
    scenario!(segment::other_kinds_are_refused, DEFAULT_ONLY),
    scenario!(segment::full_segment_refuses_objects_only, DEFAULT_ONLY),
    scenario!(segment::threads_that_race_for_a_name_get_one_counter, DEFAULT_ONLY),
    scenario!(segment::handles_outlive_the_segment, DEFAULT_ONLY),
    scenario!(segment::handler_may_add_at_each_instruction, DEFAULT_ONLY)
        .needs(can_single_step)
        .not_quick(),
    scenario!(segment::calls_keep_errno, TIERS_AND_SANDBOXES),
    scenario!(segment::closed_descriptor_is_noticed, DEFAULT_ONLY),
    scenario!(segment::later_attachment_keeps_its_descriptor, DEFAULT_ONLY),
    scenario!(segment::passed_descriptor_is_closed_on_exec, DEFAULT_ONLY),
    scenario!(segment::creation_ends_when_signals_interrupt_it, DEFAULT_ONLY),
];

fn counters_add_exactly() {
    const ADDS: i64 = 20_000;
    let segment = small_segment();
    let (counter, group) = (counter(&segment), segment.counters::<3>("group").expect("room"));
    together(4, |thread| {
        for n in 0..ADDS {
            if n % 4096 == 0 {
                pin::pin(thread + n as usize / 4096);
            }
            counter.inc();
            group.add(1, n);
            group.add(2, -40_000);
            counter.dec();
            counter.add(2);
        }
    });
    let n_sum = 4 * (0..ADDS).sum::<i64>();
    assert_eq!(counter.sum(), 8 * ADDS);
    assert_eq!(group.sum(), [0, n_sum, -160_000 * ADDS]);
    let mut sums = [7; 3];
    group.snapshot_into(&mut sums);
    assert_eq!(sums, [0, n_sum, -160_000 * ADDS]);
}

fn counter(segment: &Segment) -> SharedCounter {
    segment.counter("counter").expect("room")
}

/// Amounts at the bounds of small ones, of delta, and of the type.
const AMOUNTS: [i64; 16] = [
    0,
    1,
    -1,
    32_767,
    32_768,
    -32_768,
    -32_769,
    (1 << 38) - 1,
    1 << 38,
    -1 << 38,
    1 << 39,
    (1 << 40) + 1,
    i64::MAX,
    i64::MIN,
    i64::MIN + 1,
    i64::MAX - 1,
];

fn counters_add_all_amounts() {
    let segment = small_segment();
    let (counter, group) = (counter(&segment), segment.counters::<2>("group").expect("room"));
    let (mut random, mut expected) = (Random::new(3), [0_i64; 2]);
    for round in 0..scale::rounds(20_000) {
        let n = match random.below(3) {
            0 => random.below(u64::MAX) as i64 >> random.below(64),
            _ => AMOUNTS[random.below(16) as usize],
        };
        let which = random.below(2) as usize;
        if round % 64 == 0 {
            pin::pin(round as usize / 64);
        }
        counter.add(n);
        group.add(which, n);
        expected[which] = expected[which].wrapping_add(n);
        if random.below(4) == 0 {
            assert_eq!(counter.sum(), wrapping_sum(expected), "after {n}");
            assert_eq!(group.sum(), expected, "after {n}");
        }
    }
}

// Amounts this small reach the bound after seconds, so the delta is written into an image.
fn counter_saves_a_large_delta() {
    const MARK: i64 = 12_345;
    // Above the bound, from which on delta is saved, and an add or two below its overflow.
    const LARGE: i64 = (1 << 39) - (1 << 16);
    let segment = small_segment();
    counter(&segment).add(MARK);
    let image = image_of(&segment);
    let at = (0..image.len()).step_by(16).find(|&at| word(&image, at) == (MARK as u64) << 24);
    let at = at.expect("a bank with the amount");
    for delta in [LARGE, -LARGE] {
        let mut image = image.clone();
        image[at..at + 8].copy_from_slice(&(delta << 24).to_le_bytes());
        let attached = attach(&image).expect("a segment");
        pin_to_lane_of(at, &image);
        let counter = counter(&attached);
        let n = 32_767 * delta.signum();
        for round in 1..=20 {
            counter.add(n);
            if round % 10 == 0 {
                assert_eq!(counter.sum(), delta + round * n);
            }
        }
    }
}

fn word(image: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(image[at..at + 8].try_into().expect("8 bytes"))
}

/// Pins this thread to a CPU that adds in the lane in which a bank is.
fn pin_to_lane_of(bank_at: usize, image: &[u8]) {
    let lane_bytes = word(image, 56) as usize;
    let lane = 1 - (image.len() - 1 - bank_at) / lane_bytes;
    if let Some(nth) = pin::cpus().iter().position(|cpu| cpu % 2 == lane) {
        pin::pin(nth);
    }
}

fn invalid_names_are_refused() {
    let segment = small_segment();
    let long = "x".repeat(201);
    for name in ["", &long, "a\n", "\0", "a\0b", "\x7f", "\u{85}"] {
        let errors = [segment.counter(name).map(drop), segment.counters::<2>(name).map(drop)];
        for error in errors.map(|result| result.expect_err("an invalid name")) {
            assert_eq!(*error.kind(), SegmentErrorKind::InvalidName, "{name:?}");
            assert!(error.to_string().contains("; use 1 to 200 bytes"), "{error}");
        }
    }
    for name in [&long[..200], " ", "größe", "a/b", "requests{code=\"200\"}"] {
        segment.counter(name).expect("a valid name").inc();
        assert_eq!(segment.counter(name).expect("the name").sum(), 1, "{name:?}");
    }
}

fn names_lead_to_their_own_counters() {
    let segment = small_segment();
    let names: Vec<String> = (1..=200).map(|len| "12345678".repeat(26)[..len].into()).collect();
    let names: Vec<_> = names.into_iter().chain((0..2000).map(|n| format!("{n}"))).collect();
    let distinct: std::collections::BTreeSet<_> = names.iter().collect();
    for (n, name) in (1..).zip(&distinct) {
        segment.counter(name).expect("room").add(n);
    }
    let again = attach(&image_of(&segment)).expect("a copy");
    for (n, name) in (1..).zip(&distinct) {
        assert_eq!(segment.counter(name).expect("the name").sum(), n, "{name}");
        assert_eq!(again.counter(name).expect("the name").sum(), n, "{name}");
    }
}

fn other_kinds_are_refused() {
    let segment = small_segment();
    let (one, two) = (counter(&segment), segment.counters::<2>("two").expect("room"));
    let errors = [
        segment.counters::<2>("counter").map(drop),
        segment.counters::<3>("two").map(drop),
        segment.counter("two").map(drop),
    ];
    for error in errors.map(|result| result.expect_err("another kind")) {
        assert_eq!(*error.kind(), SegmentErrorKind::OtherKind);
        assert!(error.to_string().contains("; use another name"), "{error}");
    }
    one.inc();
    two.add(1, 1);
    assert_eq!((one.sum(), two.sum()), (1, [0, 1]));
}

fn full_segment_refuses_objects_only() {
    let fill = |make: &dyn Fn(&Segment, &str) -> Result<(), thiscpu::SegmentError>| {
        let segment = small_segment();
        let first = counter(&segment);
        let made = (0..10_000).map(|n| make(&segment, &format!("name {n}")));
        let error = made.filter_map(Result::err).next().expect("a full segment");
        assert_eq!(*error.kind(), SegmentErrorKind::Full);
        assert!(error.to_string().contains("; create it with more `max_bytes`"), "{error}");
        first.add(5);
        assert_eq!(counter(&segment).sum(), 5);
        make(&segment, "name 0").expect("an object that exists");
    };
    fill(&|segment, name| segment.counter(name).map(drop));
    fill(&|segment, name| segment.counters::<4096>(name).map(drop));
}

fn threads_that_race_for_a_name_get_one_counter() {
    for round in 0..scale::rounds(300) {
        let segment = &small_segment();
        let names: Vec<_> = (0..8).map(|n| format!("{round} {n}")).collect();
        together(4, |thread| {
            for n in 0..8 {
                segment.counter(&names[(n + 2 * thread) % 8]).expect("room").inc();
            }
        });
        for name in &names {
            assert_eq!(segment.counter(name).expect("the name").sum(), 4, "{name}");
        }
    }
}

fn handles_outlive_the_segment() {
    let place = Place::new();
    let files = || fs::read_dir("/proc/self/fd").expect("/proc").count();
    let before = files();
    let segment = small().create(&place).expect("a segment");
    let inode = format!(" {} ", fs::metadata(&place).expect("a file").ino());
    let mappings = || {
        let maps = fs::read_to_string("/proc/self/maps").expect("/proc");
        maps.lines().filter(|line| line.contains(&inode)).count()
    };
    let (counter, group) = (counter(&segment), segment.counters::<2>("group").expect("room"));
    let clone = counter.clone();
    drop(segment);
    fs::remove_file(&*place).expect("the file");
    counter.inc();
    drop(counter);
    group.add(1, 2);
    clone.inc();
    assert_eq!((clone.sum(), group.sum()), (2, [0, 2]));
    drop(clone);
    assert_eq!(mappings(), 1);
    drop(group);
    assert_eq!((mappings(), files()), (0, before));
}

/// Counters for signal handlers, and how often these have added.
static HANDLES: OnceLock<(SharedCounter, SharedCounters<2>)> = OnceLock::new();
static ADDED: AtomicI64 = AtomicI64::new(0);

fn handles() -> &'static (SharedCounter, SharedCounters<2>) {
    HANDLES.get_or_init(|| {
        let segment = small_segment();
        (counter(&segment), segment.counters("group").expect("room"))
    })
}

/// Adds to both, also amounts that are not small, and sums, which changes the active bank.
fn add_and_sum() {
    let (counter, group) = handles();
    counter.add(1);
    group.add(0, 1);
    assert!(counter.sum() > 0 && group.sum()[0] > 0);
    group.add(1, 100_000);
    counter.add(100_000);
    ADDED.fetch_add(1, SeqCst);
}

fn handler_may_add_at_each_instruction() {
    type Op = fn() -> Option<i64>;
    let ops: [(&str, Op); 5] = [
        ("add", || {
            handles().0.add(7);
            None
        }),
        ("large add", || {
            handles().0.add(1 << 20);
            None
        }),
        ("add after a sum", || {
            handles().0.sum();
            handles().0.add(7);
            None
        }),
        ("sum", || Some(handles().0.sum())),
        ("group's sum", || {
            let [once, large] = handles().1.sum();
            assert_eq!(large.rem_euclid(100_000), 0);
            assert!(once - large / 100_000 <= 1 && once >= large / 100_000, "{once}, {large}");
            None
        }),
    ];
    let own = [7, 1 << 20, 7, 0, 0];
    handles();
    let added = AtomicI64::new(0);
    for ((what, op), own) in ops.into_iter().zip(own) {
        let check = |steps, reached, sum: Option<i64>| {
            added.fetch_add(own, SeqCst);
            let by_handler = 100_001 * ADDED.load(SeqCst);
            let all = added.load(SeqCst) + by_handler;
            // Three sums: the second makes each bank active that the first has found sealed.
            let sums = [0; 3].map(|_| handles().0.sum());
            assert_eq!(sums, [all; 3], "{what}, interrupted after {steps}");
            if let Some(sum) = sum {
                let before = all - if reached { 100_001 } else { 0 };
                assert!(sum == all || sum == before, "interrupted after {steps}: {sum} of {all}");
            }
        };
        let stops = at_each_step(op, add_and_sum, check);
        assert!(stops > 100, "{what}: {stops} stops");
    }
}

fn calls_keep_errno() {
    let (counter, group) = handles();
    let calls: [&(dyn Fn() + Sync); 4] =
        [&|| counter.add(1), &|| counter.add(1 << 20), &|| _ = counter.sum(), &|| _ = group.sum()];
    for call in calls {
        assert!(errno::is_kept(call));
        // The first call of a thread, which may have to be registered.
        assert!(together(1, |_| errno::is_kept(call))[0]);
    }
}

// A program that closes all descriptors, as `closefrom` does, opens files of its own afterwards.
fn closed_descriptor_is_noticed() {
    let place = Place::new();
    let segment = small().create(&place).expect("a segment");
    let anonymous = small_segment();
    let counters = [counter(&segment), counter(&anonymous)];
    // SAFETY: this process uses none of these descriptors but the segments'.
    assert_eq!(unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) }, 0);
    let strangers: Vec<_> = (0..20).map(|_| file_with(b"stranger")).collect();
    for segment in [&segment, &anonymous] {
        // The memory stays mapped, and grows without the descriptor.
        for number in 0..20 {
            segment.counters::<64>(&format!("name {number}")).expect("growth").add(1, 1);
        }
        let error = segment.as_fd().expect_err("a closed descriptor");
        let is_ebadf = matches!(error.kind(), SegmentErrorKind::System { errno: libc::EBADF, .. });
        assert!(is_ebadf, "{error}");
        assert!(error.to_string().contains("; do not close descriptors"), "{error}");
    }
    drop((segment, anonymous));
    for counter in counters {
        counter.add(3);
        assert_eq!(counter.sum(), 3);
    }
    for stranger in strangers {
        assert_eq!(stranger.metadata().expect("an open file").len(), 8);
    }
    let again = Segment::open(&place).expect("a segment");
    assert_eq!(counter(&again).sum(), 3);
}

// Both attachments are of one file, and the second one has the number that the first one had.
fn later_attachment_keeps_its_descriptor() {
    let place = Place::new();
    let number = |segment: &Segment| segment.as_fd().map(|fd| fd.as_raw_fd());
    let first = small().create(&place).expect("a segment");
    let before = number(&first).expect("a descriptor");
    // SAFETY: this process uses none of these descriptors but the segment's.
    assert_eq!(unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) }, 0);
    let held: Vec<_> = (3..before).map(|_| file_with(b"stranger")).collect();
    let second = Segment::open(&place).expect("a segment");
    drop(held);
    assert_eq!(number(&second).expect("a descriptor"), before);
    number(&first).expect_err("a closed descriptor");
    first.counters::<1000>("growth").expect("growth without a descriptor").add(1, 1);
    drop(first);
    assert_eq!(number(&second).expect("a descriptor"), before);
    assert_eq!(second.counters::<1000>("growth").expect("the name").sum()[1], 1);
    // A later one may have the number again, when the second has gone.
    drop(second);
    let third = Segment::open(&place).expect("a segment");
    number(&third).expect("a descriptor");
}

fn passed_descriptor_is_closed_on_exec() {
    let segment = small_segment();
    let duplicate = OwnedFd::from(file_of(&segment));
    // SAFETY: the descriptor is open, and the call takes numbers.
    assert_eq!(unsafe { libc::fcntl(duplicate.as_raw_fd(), libc::F_SETFD, 0) }, 0);
    let attached = Segment::from_fd(duplicate).expect("a segment");
    let fd = attached.as_fd().expect("a descriptor").as_raw_fd();
    // SAFETY: the descriptor is open, and the call takes numbers.
    assert_eq!(unsafe { libc::fcntl(fd, libc::F_GETFD) }, libc::FD_CLOEXEC);
}

// A profiler's timer interrupts calls that take long, such as those that give a file memory.
fn creation_ends_when_signals_interrupt_it() {
    signal::interrupt_calls(libc::SIGALRM);
    let every = libc::timeval { tv_sec: 0, tv_usec: 1000 * i64::from(scale::factor()) };
    let timer = libc::itimerval { it_interval: every, it_value: every };
    // SAFETY: the timer is valid, and its signal has a handler.
    let set = unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()) };
    assert_eq!(set, 0);
    let segment = Segment::options().lanes(1).max_bytes(16 << 30).anonymous().expect("a segment");
    counter(&segment).inc();
    assert_eq!(counter(&segment).sum(), 1);
}

//! Registries whose processes fork in the middle of inserts, or stop there all at once.

use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::SeqCst};

use thiscpu::__internal::inspect;
use thiscpu::{Segment, SegmentView, SharedFamily};

use crate::common::segment::{file_of, image_of, small, smallest};
use crate::common::{
    DEFAULT_ONLY, Scenario, Steps, at_every_nth_step, at_sampled_steps, can_single_step, fork,
    fork_at_steps, scale, scenario, signal, stopped_child,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(segment_registry_forks::handlers_may_fork_in_inserts, DEFAULT_ONLY)
        .needs(can_single_step),
    scenario!(segment_registry_forks::other_threads_may_fork_in_inserts, DEFAULT_ONLY)
        .needs(can_single_step),
    scenario!(segment_registry_forks::eighty_stopped_inserts_leave_all_memory, DEFAULT_ONLY)
        .needs(can_single_step),
    scenario!(segment_registry_forks::stopped_family_inserts_leave_their_memory, DEFAULT_ONLY)
        .needs(can_single_step),
    scenario!(segment_registry_forks::last_memory_can_be_that_of_the_very_name, DEFAULT_ONLY)
        .needs(can_single_step),
];

fn family(segment: &Segment) -> SharedFamily {
    let registry = segment.registry().expect("a registry");
    registry.counter_family("requests", "Requests.", &["method", "number"]).expect("room")
}

/// Words of a registry's head.
const CELLS_USED: usize = 8;
const FAMILIES_USED: usize = 9;

/// Returns a word of the head of a registry, which lies behind the waiters.
fn word_of_head(segment: &Segment, number: usize) -> u64 {
    let image = image_of(segment);
    let word = |at: usize| u64::from_le_bytes(image[at..at + 8].try_into().expect("8 bytes"));
    let head = 4096 + 8 * word(40) + 64 * word(64) + 64 * word(72);
    word(head as usize + 8 * number)
}

/// Returns the bytes that records have.
fn record_bytes(segment: &Segment) -> u64 {
    u64::from_le_bytes(image_of(segment)[128..136].try_into().expect("8 bytes"))
}

fn assert_sound(segment: &Segment) {
    let view = SegmentView::from_fd(file_of(segment).into()).expect("a segment");
    let checked = inspect::check(&view).expect("an answer");
    assert!(checked.faults.is_empty(), "{:?}", checked.faults);
}

/// A family, names, and the number of the current one.
struct Names {
    segment: Segment,
    family: SharedFamily,
    names: Vec<String>,
    current: AtomicUsize,
}

impl Names {
    fn get() -> &'static Names {
        static NAMES: OnceLock<Names> = OnceLock::new();
        NAMES.get_or_init(|| {
            let segment = small().series(50_000).anonymous().expect("a segment");
            let family = family(&segment);
            let names = (0..20_000).map(|number| format!("{number}")).collect();
            Names { segment, family, names, current: AtomicUsize::new(0) }
        })
    }

    /// Counts in a series, which the call makes if there is none; allocates nothing.
    fn count(&self, number: usize) {
        self.family.series(&["GET", &self.names[number]]).expect("room").inc();
    }

    fn sum(&self, number: usize) -> u64 {
        let found = self.family.find(&["GET", &self.names[number]]).expect("no damage");
        found.map_or(0, |series| series.sum())
    }
}

/// The child of a handler, after the handler has returned in it.
static IS_CHILD: AtomicUsize = AtomicUsize::new(0);

/// Makes the current name, forks, and returns in the child first, and then in the parent.
///
/// So both lose the race for the name, and give back the memory that each of them had taken.
extern "C" fn fork_in_handler(_: i32) {
    let names = Names::get();
    names.count(names.current.load(SeqCst));
    // SAFETY: `fork` has no preconditions, and the child calls only what handlers may call.
    match unsafe { libc::fork() } {
        0 => IS_CHILD.store(1, SeqCst),
        child => {
            // SAFETY: the call stores no status.
            unsafe { libc::waitpid(child, null_mut(), 0) };
        }
    }
}

// Parent and child go on from one instruction of an insert. The signal comes between any two.
fn handlers_may_fork_in_inserts() {
    signal::handle(libc::SIGUSR1, fork_in_handler);
    let names = Names::get();
    fn interrupt() {
        // SAFETY: `raise` has no preconditions.
        unsafe { libc::raise(libc::SIGUSR1) };
    }
    let exit_child = || {
        if IS_CHILD.load(SeqCst) == 1 {
            // SAFETY: `_exit` has no preconditions.
            unsafe { libc::_exit(0) };
        }
    };
    let op = || {
        let names = Names::get();
        names.count(names.current.load(SeqCst));
        if IS_CHILD.load(SeqCst) == 1 {
            // Takes the memory that an insert of both has left.
            names.count(names.current.load(SeqCst) + 1);
        }
        exit_child();
        names.count(names.current.load(SeqCst) + 2);
    };
    let distance = if scale::is_quick() { 23 } else { 3 };
    let stops = at_every_nth_step(distance, op, interrupt, |steps, reached, ()| {
        // One that was forked after its first name.
        exit_child();
        let current = names.current.fetch_add(3, SeqCst);
        let sums = [0, 1, 2].map(|behind| names.sum(current + behind));
        // If the signal came after an add, the child has the add of its parent.
        let is_right = match reached {
            true => (2..=3).contains(&sums[0]) && (sums[1..] == [1, 1] || sums[1] == 0),
            false => sums == [1, 0, 1],
        };
        assert!(is_right, "forked after {steps} steps: {sums:?}");
    });
    assert!(stops > 20, "{stops} stops");
    assert_sound(&names.segment);
}

// The child has no thread that inserts. It inserts the very name, and others.
fn other_threads_may_fork_in_inserts() {
    let names = Names::get();
    let child = || {
        let names = Names::get();
        (0..3).for_each(|behind| names.count(names.current.load(SeqCst) + behind));
    };
    let op = || names.count(names.current.load(SeqCst));
    let prepare = || {
        names.current.fetch_add(3, SeqCst);
    };
    fork_at_steps(Steps::Sampled, prepare, op, child, |()| {
        let current = names.current.load(SeqCst);
        let [own, one, two] = [0, 1, 2].map(|behind| names.sum(current + behind));
        assert!(own > 1 && own == one + 1 && one == two, "{own}, {one}, {two}");
    });
    assert_sound(&names.segment);
}

// All have taken memory for one name. Those who are too late leave it to the next inserts.
fn eighty_stopped_inserts_leave_all_memory() {
    const STOPPED: u64 = 80;
    let segment = small().series(200).anonymous().expect("a segment");
    let family = family(&segment);
    let insert = || family.series(&["GET", "one"]).expect("room").inc();
    // Those of another segment tell after how many steps a record is taken.
    let other = small().series(200).anonymous().expect("a segment");
    let other_family = self::family(&other);
    let before = record_bytes(&other);
    let is_taken = |steps: &u64| {
        let insert = || other_family.series(&["GET", "one"]).expect("room").inc();
        fork::kill(stopped_child(*steps, insert));
        record_bytes(&other) > before
    };
    let steps = 5 + (1..).step_by(5).find(is_taken).expect("steps");
    let children: Vec<_> = (0..STOPPED).map(|_| stopped_child(steps, insert)).collect();
    insert();
    for child in children {
        // SAFETY: the child is this process's own, and not waited for yet.
        unsafe { libc::kill(child, libc::SIGCONT) };
        fork::finish(child).unwrap_or_else(|error| panic!("{error}"));
    }
    let used = || (word_of_head(&segment, CELLS_USED), record_bytes(&segment));
    let before = used();
    assert_eq!(before.0, STOPPED + 1, "not all were stopped with memory");
    assert_sound(&segment);
    for number in 0..STOPPED {
        family.series(&["GET", &number.to_string()]).expect("room").add(7);
    }
    assert_eq!(used(), before, "memory of late inserts was lost");
    assert_eq!(family.series(&["GET", "one"]).expect("it exists").sum(), STOPPED + 1);
    assert_sound(&segment);
}

fn stopped_family_inserts_leave_their_memory() {
    let segment = small().series(5000).anonymous().expect("a segment");
    let registry = segment.registry().expect("a registry");
    let current = AtomicUsize::new(0);
    let make = || {
        let name = format!("family_{:05}_total", current.load(SeqCst));
        drop(registry.counter_family(&name, "", &[]).expect("room"));
    };
    let bytes_before = record_bytes(&segment);
    let prepare = || {
        current.fetch_add(1, SeqCst);
    };
    at_sampled_steps(prepare, make, |_| make(), |_, _, ()| ());
    let made = current.load(SeqCst) as u64;
    assert!(made > 20, "{made} families");
    assert_eq!(word_of_head(&segment, FAMILIES_USED), made);
    // A family has 6 words, 2 lengths, and 3 words of its name. One more can be free.
    let used = (record_bytes(&segment) - bytes_before) / 128;
    assert!((made..=made + 1).contains(&used), "{used} records of {made} families");
    assert_sound(&segment);
}

// A stopped insert finds no memory, because another one has taken the last for this very name.
fn last_memory_can_be_that_of_the_very_name() {
    static FAMILY: AtomicPtr<SharedFamily> = AtomicPtr::new(null_mut());
    static OTHERS: AtomicUsize = AtomicUsize::new(0);
    fn insert() -> bool {
        // SAFETY: the pointer is that of a family that is never dropped.
        let family = unsafe { &*FAMILY.load(SeqCst) };
        family.series(&["last", ""]).map(|series| series.inc()).is_ok()
    }
    fn insert_too() {
        // The stopped one can hold the memory. Then there is no memory, and no name yet.
        OTHERS.store(insert().into(), SeqCst);
    }
    // One series and 64 spare cells.
    let prepare = || {
        let family = family(&smallest().series(1).anonymous().expect("a segment"));
        for number in 0..64 {
            family.series(&["", &number.to_string()]).expect("room");
        }
        // The series before is leaked.
        FAMILY.store(Box::into_raw(Box::new(family)), SeqCst);
    };
    prepare();
    let distance = if scale::is_quick() { 13 } else { 2 };
    let stops = at_every_nth_step(distance, insert, insert_too, |steps, _, was_made| {
        assert!(was_made, "stopped after {steps}");
        // SAFETY: the pointer is that of a family that is never dropped.
        let family = unsafe { &*FAMILY.load(SeqCst) };
        let sum = family.series(&["last", ""]).expect("it exists").sum();
        assert_eq!(sum, 1 + OTHERS.swap(0, SeqCst) as u64, "stopped after {steps}");
        prepare();
    });
    assert!(stops > 20, "{stops} stops");
}

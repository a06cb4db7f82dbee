//! Views of segments: bounds that hold, without a write.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::SeqCst};

use thiscpu::{
    Bounds, BudgetParticipant, BudgetView, CounterView, Segment, SegmentErrorKind, SegmentView,
    SharedBudget, SharedCounter,
};

use super::segment_participants::{Holder, LIMIT, budget, until};
use crate::common::segment::{Place, file_of, shared_words, small, smallest};

use crate::common::{
    DEFAULT_ONLY, Scenario, SetOnDrop, TIERS, at_each_step, at_every_nth_step, can_single_step,
    fork, pin, scale, scenario, together_while,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(segment_view::bounds_of_a_quiet_counter_are_exact, TIERS),
    scenario!(segment_view::bounds_of_growing_counter_lie_within_call, DEFAULT_ONLY),
    scenario!(segment_view::bounds_hold_while_tokens_move, DEFAULT_ONLY),
    scenario!(segment_view::bounds_of_a_group_hold_at_one_instant, DEFAULT_ONLY),
    scenario!(segment_view::counter_is_refused_when_missing, DEFAULT_ONLY),
    scenario!(segment_view::budget_is_as_last_operation_left_it, TIERS),
    scenario!(segment_view::exact_budget_is_of_one_instant_when_limit_changes, DEFAULT_ONLY)
        .needs(can_single_step),
    scenario!(segment_view::participants_are_listed_with_what_they_hold, TIERS),
    scenario!(segment_view::participant_that_ends_during_a_look_is_listed_whole, DEFAULT_ONLY)
        .needs(can_single_step)
        .not_quick(),
    scenario!(segment_view::view_writes_nothing, DEFAULT_ONLY),
];

fn view_of(segment: &Segment) -> SegmentView {
    let fd = segment.as_fd().expect("the descriptor is open");
    SegmentView::from_fd(fd.try_clone_to_owned().expect("a descriptor")).expect("a segment")
}

fn counter_and_view(segment: &Segment) -> (SharedCounter, CounterView) {
    let counter = segment.counter("counter").expect("room");
    (counter, view_of(segment).counter("counter").expect("the counter exists"))
}

/// Calls `look` often while two threads make these adds, one after the other.
fn while_adding(counter: &SharedCounter, amounts: [i64; 2], look: impl Fn()) {
    let stop = AtomicBool::new(false);
    let add = |_| {
        while !stop.load(SeqCst) {
            amounts.iter().for_each(|&n| counter.add(n));
        }
    };
    together_while(2, add, || {
        let _stop = SetOnDrop(&stop);
        (0..scale::rounds(20_000)).for_each(|_| look());
    });
}

fn bounds_of_a_quiet_counter_are_exact() {
    let segment = Segment::anonymous().expect("memory");
    let (counter, view) = counter_and_view(&segment);
    let mut value = 0;
    // Before and after each sum, because a sum moves what was added; with both signs at the end.
    for amount in [0, 1, 40_000, 1 << 40, -1, -(1 << 40), -40_000, 7] {
        counter.add(amount);
        value += amount;
        for _ in 0..3 {
            assert_eq!(view.bounds(), Bounds { low: value, estimate: value, high: value });
            assert_eq!(counter.sum(), value);
        }
    }
}

// One thread adds, so it knows the value before and after each add.
fn bounds_of_growing_counter_lie_within_call() {
    let segment = Segment::anonymous().expect("memory");
    let (counter, view) = counter_and_view(&segment);
    while_adding(&counter, [1, 50_000], || {
        let before = counter.sum();
        let Bounds { low, high, .. } = view.bounds();
        let after = counter.sum();
        assert!(before <= low && low <= high && high <= after, "{before} {low} {high} {after}");
    });
}

// Two threads pass a unit from one CPU's lane to another's: the value is 0, 1 or 2.
fn bounds_hold_while_tokens_move() {
    let segment = Segment::anonymous().expect("memory");
    let (counter, view) = counter_and_view(&segment);
    while_adding(&counter, [1, -1], || {
        let Bounds { low, high, .. } = view.bounds();
        assert!(low <= 2 && high >= 0, "{low} to {high}");
    });
    assert_eq!(counter.sum(), 0);
}

// Each thread adds to the last counter what it has added to the first. So the difference of both
// is 0, 1 or 2 at each instant, and the bounds of one instant allow that. The counters between them
// take time to look at.
fn bounds_of_a_group_hold_at_one_instant() {
    const LAST: usize = 63;
    let segment = Segment::anonymous().expect("memory");
    let (group, view) = (segment.counters::<64>("group").expect("room"), view_of(&segment));
    let view = view.counters::<64>("group").expect("the group exists");
    let stop = AtomicBool::new(false);
    let add = |_| {
        while !stop.load(SeqCst) {
            [0, LAST].into_iter().for_each(|counter| group.add(counter, 1));
        }
    };
    together_while(2, add, || {
        let _stop = SetOnDrop(&stop);
        for _ in 0..scale::rounds(20_000) {
            let all = view.bounds();
            let (first, last) = (all[0], all[LAST]);
            assert!(first.high >= last.low && first.low <= last.high + 2);
        }
    });
    let sums = group.sum();
    assert_eq!(view.bounds().map(|bounds| bounds.low), sums);
    assert_eq!(view.bounds().map(|bounds| bounds.high), sums);
}

fn counter_is_refused_when_missing() {
    let segment = Segment::anonymous().expect("memory");
    let missing = view_of(&segment).counter("missing").expect_err("nobody made it");
    assert_eq!(*missing.kind(), SegmentErrorKind::NoSuchObject);
    segment.counters::<2>("pair").expect("room");
    let other = view_of(&segment).counter("pair").expect_err("it is a group");
    assert_eq!(*other.kind(), SegmentErrorKind::OtherKind);
}

// The mapping has no write access, so a write would end this process.
fn view_writes_nothing() {
    let path = std::env::temp_dir().join(format!("thiscpu-view-{}", std::process::id()));
    let segment = Segment::create(&path).expect("a tmpfs");
    segment.counter("counter").expect("room").add(-3);
    let budget = budget(&segment);
    // The killed process is not reclaimed: nobody who can write has looked for it.
    Holder::start(|| budget.try_acquire(30).expect("units are available"), || ()).kill();
    let view = SegmentView::open(&path).expect("a segment");
    std::fs::remove_file(&path).expect("the file exists");
    let before = std::fs::read(format!("/proc/self/fd/{}", fd_of(&segment))).expect("a file");
    assert_eq!(view.counter("counter").expect("it exists").bounds().low, -3);
    let view = view.budget("budget").expect("it exists");
    let [_, other] = view.participants()[..] else { panic!("two participants") };
    assert!(!other.is_alive && other.held == 30 && view.state().limit == LIMIT, "{other:?}");
    let after = std::fs::read(format!("/proc/self/fd/{}", fd_of(&segment))).expect("a file");
    assert!(before == after);
}

fn fd_of(segment: &Segment) -> i32 {
    use std::os::fd::AsRawFd as _;
    segment.as_fd().expect("the descriptor is open").as_raw_fd()
}

fn budget_is_as_last_operation_left_it() {
    let place = Place::new();
    let segment = small().create(&place).expect("a segment");
    let budget = segment.budget("budget", 1000).expect("room");
    let view = SegmentView::open(&place).expect("a segment");
    let error = view.budget("another").expect_err("no object");
    assert_eq!(error.kind(), &SegmentErrorKind::NoSuchObject);
    segment.counter("counter").expect("room");
    let error = view.budget("counter").expect_err("a counter");
    assert_eq!(error.kind(), &SegmentErrorKind::OtherKind);
    let view = view.budget("budget").expect("the budget");
    let exact = |limit, free, is_queued, is_closed| {
        let state = view.state();
        assert_eq!((state.limit, state.free), (limit, free));
        assert_eq!((state.is_queued, state.is_closed), (is_queued, is_closed));
        assert!(state.is_exact);
    };
    budget.try_acquire(10).expect("units are available");
    let lent = view.state();
    assert!(!lent.is_exact && lent.limit == 1000 && (0..990).contains(&lent.free), "{lent:?}");
    assert_eq!(budget.acquired(), 10);
    exact(1000, 990, false, false);
    budget.try_acquire(990).expect("units are available");
    budget.set_limit(900);
    exact(900, -100, false, false);
    let waits = || assert!(budget.acquire(1).is_err());
    std::thread::scope(|threads| {
        threads.spawn(waits);
        while !view.state().is_queued {
            std::thread::yield_now();
        }
        exact(900, -100, true, false);
        budget.close();
    });
    exact(900, -100, false, true);
    budget.release(1000);
    exact(900, 900, false, true);
}

// The ended process is not reclaimed: no call of a process that can write has looked for it.
fn participants_are_listed_with_what_they_hold() {
    let place = Place::new();
    let segment = small().create(&place).expect("a segment");
    let (budget, idle) = (budget(&segment), segment.budget("idle", 9).expect("room"));
    let open = |name| SegmentView::open(&place).expect("a segment").budget(name).expect("a budget");
    let [view, idle_view] = ["budget", "idle"].map(open);
    budget.try_acquire(20).expect("units are available");
    let holder = Holder::start(|| budget.try_acquire(30).expect("units are available"), || ());
    let own = (std::process::id(), 20, true);
    let other = holder.pid as u32;
    let assert_listed = |wanted: &[(u32, u64, bool)]| {
        let all = view.participants();
        let listed: Vec<_> = all.iter().map(|it| (it.pid, it.held, it.is_alive)).collect();
        assert_eq!(listed, wanted);
        assert!(all.iter().zip(0..).all(|(it, slot)| it.slot == slot), "{all:?}");
    };
    assert_listed(&[own, (other, 30, true)]);
    holder.stop();
    assert_listed(&[own, (other, 30, true)]);
    // Returns when the process is gone, with its lock.
    holder.kill();
    assert_listed(&[own, (other, 30, false)]);
    let idle_ones: Vec<_> = idle_view.participants().iter().map(|it| it.held).collect();
    assert_eq!(idle_ones, [0, 0]);
    drop(idle);
    // Takes the units back.
    assert_eq!(budget.acquired(), 20);
    assert_listed(&[own]);
    file_of(&segment).set_len(0).expect("a file with a name");
    assert_listed(&[]);
}

/// Returns a budget of which 70 units are held, and a view of it.
fn budget_and_view() -> &'static (SharedBudget, BudgetView) {
    static HANDLES: OnceLock<(SharedBudget, BudgetView)> = OnceLock::new();
    HANDLES.get_or_init(|| {
        let segment = Segment::anonymous().expect("a segment");
        let budget = segment.budget("budget", 100).expect("room");
        budget.try_acquire(70).expect("units are available");
        (budget, view_of(&segment).budget("budget").expect("the budget"))
    })
}

fn exact_budget_is_of_one_instant_when_limit_changes() {
    let (budget, view) = budget_and_view();
    // The last operation is none that sets the limit, and all free units are in the pool.
    let prepare = || {
        budget.try_acquire(1).expect("units are available");
        budget.release(1);
        assert_eq!(budget.acquired(), 70);
    };
    let change = || {
        let budget = &budget_and_view().0;
        budget.set_limit(1100 - budget.limit());
    };
    prepare();
    let stops = at_each_step(
        || view.state(),
        change,
        |steps, _, state| {
            let held = state.limit as i64 - state.free;
            assert!(!state.is_exact || held == 70, "changed after {steps}: {state:?}");
            prepare();
        },
    );
    assert!(stops > 20, "{stops} stops");
}

/// Returns a budget of which this process holds 70 units, and a view of it.
fn budget_of_few() -> &'static (SharedBudget, BudgetView) {
    static HANDLES: OnceLock<(SharedBudget, BudgetView)> = OnceLock::new();
    HANDLES.get_or_init(|| {
        // Few participants, at each of which a look loads the slot.
        let segment = smallest().participants(4).anonymous().expect("a segment");
        let budget = budget(&segment);
        budget.try_acquire(70).expect("units are available");
        (budget, view_of(&segment).budget("budget").expect("the budget"))
    })
}

/// The process that ends in a look.
static VICTIM: AtomicI32 = AtomicI32::new(0);

/// Starts a process that holds 10 units in one lane and 20 in another.
fn start_victim(budget: &SharedBudget) {
    let is_ready = &shared_words()[0];
    let pid = fork::start(|| {
        for (cpu, units) in [10, 20].into_iter().enumerate() {
            pin::pin(cpu);
            budget.try_acquire(units).expect("units are available");
        }
        is_ready.store(1, SeqCst);
        until(|| false);
    });
    until(|| is_ready.load(SeqCst) == 1);
    VICTIM.store(pid, SeqCst);
}

/// Kills that process, and returns when the kernel has released its lock.
fn end_victim() {
    let pid = VICTIM.swap(0, SeqCst);
    if pid != 0 {
        let mut status = 0;
        // SAFETY: the child is this process's own and not reaped yet; the status is valid.
        let ended = unsafe { (libc::kill(pid, libc::SIGKILL), libc::waitpid(pid, &mut status, 0)) };
        assert_eq!(ended, (0, pid));
    }
}

// Between two steps of a look, the participant ends, and perhaps another process declares it dead,
// takes its units back and frees the slot.
fn participant_that_ends_during_a_look_is_listed_whole() {
    let ends: [(&str, fn()); 2] = [
        ("killed", end_victim),
        ("reclaimed", || {
            end_victim();
            assert_eq!(budget_of_few().0.acquired(), 70);
        }),
    ];
    let (budget, view) = budget_of_few();
    for (what, end) in ends {
        start_victim(budget);
        let check = |steps, was_stopped, listed: Vec<BudgetParticipant>| {
            let what = format!("{what} after {steps}: {listed:?}");
            let [own, others @ ..] = &listed[..] else { panic!("{what}") };
            assert!(own.is_alive && own.held == 70, "{what}");
            match others {
                [] => assert!(was_stopped && what.starts_with("reclaimed"), "{what}"),
                [other] => assert!(other.held == 30, "{what}"),
                _ => panic!("{what}"),
            }
            end_victim();
            assert_eq!(budget.acquired(), 70);
            start_victim(budget);
        };
        let distance = if scale::level() == scale::Level::Full { 3 } else { 17 };
        let stops = at_every_nth_step(distance, || view.participants(), end, check);
        assert!(stops > 20, "{stops} stops");
        end_victim();
        assert_eq!(budget.acquired(), 70);
    }
}

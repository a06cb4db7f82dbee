//! Shared budgets whose processes are killed or stopped between any two instructions.
//!
//! In most scenarios nobody is killed: images of the segment at each instruction of an operation
//! show what a death would leave, and each is recovered in a copy.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use thiscpu::{
    BudgetParticipant, BudgetState, Segment, SegmentView, SharedAcquireError, SharedBudget,
};

use super::segment_kills::{images_of, kill_distance};
use super::segment_participants::{Holder, LIMIT, budget, exhausted, until};
use crate::common::segment::{attach, file_of, image_of, smallest};
use crate::common::{
    DEFAULT_ONLY, Scenario, at_every_nth_step, at_kills, can_single_step, fork, pin, scale,
    scenario,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(segment_budget_kills::killed_calls_return_everything, DEFAULT_ONLY)
        .needs(can_single_step)
        .slow(),
    scenario!(segment_budget_kills::views_count_what_killed_calls_held, DEFAULT_ONLY)
        .needs(can_single_step)
        .not_quick(),
    scenario!(segment_budget_kills::killed_releases_serve_waiters, DEFAULT_ONLY)
        .needs(can_single_step)
        .not_quick(),
    scenario!(segment_budget_kills::killed_joins_leave_the_slot_free, DEFAULT_ONLY)
        .needs(can_single_step)
        .not_quick(),
    scenario!(segment_budget_kills::killed_leaves_return_everything, DEFAULT_ONLY)
        .needs(can_single_step)
        .not_quick(),
    scenario!(segment_budget_kills::recoveries_may_be_killed, DEFAULT_ONLY)
        .needs(can_single_step)
        .slow(),
    scenario!(segment_budget_kills::stopped_calls_go_on, DEFAULT_ONLY)
        .needs(can_single_step)
        .not_quick(),
    scenario!(segment_budget_kills::processes_go_on_when_one_is_killed, DEFAULT_ONLY)
        .needs(fork::can_trace)
        .not_quick(),
];

/// Units that another participant holds, which lives.
const OTHERS: u64 = 10;

/// A budget as two participants see it. The first has slot 0 and 20 units, the other slot 1.
struct Two {
    segment: Segment,
    own: SharedBudget,
    other: SharedBudget,
}

impl Two {
    fn new() -> Two {
        // Few participants also have few waiters, at which each step looks.
        let segment = smallest().participants(8).anonymous().expect("a segment");
        let second = Segment::from_fd(file_of(&segment).into()).expect("a segment");
        let (own, other) = (budget(&segment), budget(&second));
        own.try_acquire(20).expect("units are available");
        other.try_acquire(OTHERS).expect("units are available");
        Two { segment, own, other }
    }
}

/// Changes an image as if the processes of some slots had ended.
fn with_dead(image: &[u8], slots: &[usize]) -> Vec<u8> {
    /// The word of the header with the entries of the index, which is before the slots.
    const ENTRIES: usize = 5;
    /// Where the record of a slot has the time when its process began.
    const START: usize = 16;
    let mut image = image.to_vec();
    let word = |image: &[u8], at: usize| {
        u64::from_le_bytes(image[at..at + 8].try_into().expect("8 bytes"))
    };
    let slots_at = 4096 + 8 * word(&image, 8 * ENTRIES) as usize;
    for at in slots.iter().map(|slot| slots_at + 64 * slot + START) {
        let start = word(&image, at) + 1;
        image[at..at + 8].copy_from_slice(&start.to_le_bytes());
    }
    image
}

/// Returns the participants of the budget in an image, in which some slots are dead.
fn participants_of(image: &[u8], dead: &[usize]) -> (BudgetState, Vec<BudgetParticipant>) {
    let copy = attach(&with_dead(image, dead)).expect("a segment");
    let view = SegmentView::from_fd(file_of(&copy).into()).expect("a segment");
    let view = view.budget("budget").expect("the budget");
    (view.state(), view.participants())
}

/// Uses a budget that killed processes have left; the others hold `held` units.
fn assert_usable(budget: &SharedBudget, held: u64, what: &str) {
    assert_eq!(budget.acquired(), held, "{what}");
    if budget.is_closed() {
        assert_eq!(budget.try_acquire(1), Err(SharedAcquireError::Closed), "{what}");
        return;
    }
    let available = budget.limit() - held;
    for round in 0..2 {
        pin::pin(round);
        budget.try_acquire(available).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(budget.try_acquire(1), exhausted(0), "{what}");
        budget.release(available - 1);
        assert_eq!(budget.try_acquire(available), exhausted(available - 1), "{what}");
        budget.release(1);
        assert_eq!((budget.available(), budget.waiters()), (available, 0), "{what}");
        for _ in 0..200 {
            budget.try_acquire(2).unwrap_or_else(|error| panic!("{what}: {error}"));
            budget.release(2);
        }
        assert_eq!(budget.acquired(), held, "{what}");
    }
}

/// Recovers an image in which processes have been killed.
pub(crate) fn assert_recovers(image: &[u8], killed: &[usize], held: u64, what: &str) {
    let copy = attach(&with_dead(image, killed)).unwrap_or_else(|error| panic!("{what}: {error}"));
    let budget = budget(&copy);
    if budget.waiters() > 0 && budget.try_acquire(1).is_ok() {
        // The waiter, which is stopped, would have served itself at its next look.
        budget.release(1);
    }
    assert_usable(&budget, held, what);
}

type Act = fn(&Two);

/// What the two participants did before.
const STATES: [(&str, Act); 4] = [
    ("with credit", |_| ()),
    ("after a recall", |two| _ = two.other.available()),
    ("exhausted", |two| _ = two.own.try_acquire(LIMIT - 20 - OTHERS)),
    ("almost exhausted", |two| {
        let _ = two.own.try_acquire(LIMIT - 25 - OTHERS);
        let _ = two.other.available();
    }),
];

const CALLS: [(&str, Act); 12] = [
    ("acquire of 1", |two| _ = two.own.try_acquire(1)),
    ("acquire of 30", |two| _ = two.own.try_acquire(30)),
    ("refusal", |two| assert!(two.own.try_acquire(LIMIT).is_err())),
    ("release of 1", |two| two.own.release(1)),
    ("release of 20", |two| two.own.release(20)),
    ("lease", |two| drop(two.own.lease(3))),
    ("look", |two| _ = two.own.available()),
    ("raised limit", |two| two.own.set_limit(2 * LIMIT)),
    ("lowered limit", |two| two.own.set_limit(LIMIT / 2)),
    ("close", |two| two.own.close()),
    ("wait", |two| _ = two.own.acquire_timeout(LIMIT, Duration::ZERO)),
    ("wait for the last", |two| _ = two.own.acquire_timeout(6, Duration::ZERO)),
];

fn killed_calls_return_everything() {
    for (state, prepare) in STATES {
        for (number, (call, act)) in CALLS.iter().enumerate() {
            pin::pin(number);
            let two = Two::new();
            prepare(&two);
            let images = images_of(&two.segment, || act(&two));
            for image in images {
                assert_recovers(&image, &[0], OTHERS, &format!("{state}, {call}"));
            }
        }
    }
}

// The call happens at one instruction: what the view counts changes once, and by all of its units.
fn views_count_what_killed_calls_held() {
    let calls: [(&str, Act, u64); 5] = [
        ("acquire of 1", |two| _ = two.own.try_acquire(1), 21),
        ("acquire of 30", |two| _ = two.own.try_acquire(30), 50),
        ("release of 1", |two| two.own.release(1), 19),
        ("release of 20", |two| two.own.release(20), 0),
        ("look", |two| _ = two.own.available(), 20),
    ];
    for (state, prepare) in &STATES[..2] {
        for (call, act, after) in calls {
            let two = Two::new();
            prepare(&two);
            let mut held = vec![];
            for image in images_of(&two.segment, || act(&two)) {
                let (state, all) = participants_of(&image, &[0]);
                let [own, other] = all[..] else { panic!("two participants") };
                assert!(!own.is_alive && other.is_alive && other.held == OTHERS, "{own:?}");
                // Without credit, each unit that has left the pool is held.
                let taken = (state.limit as i64 - state.free) as u64;
                let all = own.held + other.held;
                assert!(!state.is_exact || taken == all, "{call}: {own:?}, {state:?}");
                held.push(own.held);
            }
            held.dedup();
            let wanted = if after == 20 { vec![20] } else { vec![20, after] };
            assert_eq!(held, wanted, "{state}, {call}");
        }
    }
}

// The waiter lives; it gets the units of the killed process, at whatever instruction that was. What
// a view counts changes by whole calls only, also while a grant to the waiter is not applied.
fn killed_releases_serve_waiters() {
    // And what the releaser and the waiter hold, at one instruction after the other.
    let releases: [(&str, Act, &[u64], &[u64]); 4] = [
        ("release", |two| two.own.release(50), &[50, 0], &[0, 60]),
        (
            "two releases",
            |two| {
                two.own.release(7);
                two.own.release(43);
            },
            &[50, 43, 0],
            &[0, 60],
        ),
        ("raised limit", |two| two.own.set_limit(2 * LIMIT), &[50], &[0, 60]),
        ("look", |two| _ = two.own.available(), &[50], &[0]),
    ];
    for (what, act, by_releaser, by_waiter) in releases {
        let two = Two::new();
        two.own.try_acquire(30).expect("units are available");
        let waits = || {
            fork::start(|| {
                two.own.acquire(60).expect("open");
                until(|| false);
            })
        };
        let waiter = Holder::of(waits());
        // Not before it has told the pool that it waits.
        until(|| match two.other.try_acquire(1) {
            Err(refused) => refused.available() == 0,
            Ok(()) => {
                two.other.release(1);
                false
            }
        });
        waiter.stop();
        let mut held = [vec![], vec![]];
        for image in images_of(&two.segment, || act(&two)) {
            for dead in [&[0][..], &[0, 2]] {
                let (state, all) = participants_of(&image, dead);
                let [own, other, waiter] = all[..] else { panic!("three participants") };
                let taken = state.limit as i64 - state.free;
                let all_held = (own.held + other.held + waiter.held) as i64;
                assert!(!state.is_exact || taken == all_held, "{what}: {all:?}, {state:?}");
                assert!(other.held == OTHERS && !own.is_alive, "{what}: {all:?}");
                assert_eq!(waiter.is_alive, dead.len() == 1, "{what}: {all:?}");
                [own, waiter].iter().zip(&mut held).for_each(|(it, held)| held.push(it.held));
            }
            assert_recovers(&image, &[0], OTHERS + 60, what);
            // Both the releaser and the waiter.
            assert_recovers(&image, &[0, 2], OTHERS, what);
        }
        held.iter_mut().for_each(Vec::dedup);
        assert_eq!(held, [by_releaser, by_waiter], "{what}");
        waiter.kill();
    }
}

fn killed_joins_leave_the_slot_free() {
    for name in ["budget", "another"] {
        let two = Two::new();
        let third = Segment::from_fd(file_of(&two.segment).into()).expect("a segment");
        let images = images_of(&two.segment, || {
            let joined = third.budget(name, LIMIT).expect("room");
            std::mem::forget(joined.lease(5).expect("units are available"));
            std::mem::forget(joined);
        });
        assert!(images.len() >= 4, "{} images of a join", images.len());
        for image in images {
            assert_recovers(&image, &[0, 2], OTHERS, "join");
            let copy = attach(&with_dead(&image, &[0, 2])).expect("a segment");
            assert_usable(&copy.budget("another", LIMIT).expect("room"), 0, "another budget");
        }
    }
}

fn killed_leaves_return_everything() {
    let two = Two::new();
    let third = Segment::from_fd(file_of(&two.segment).into()).expect("a segment");
    let budgets = ["budget", "another"].map(|name| third.budget(name, LIMIT).expect("room"));
    budgets.iter().for_each(|budget| budget.try_acquire(15).expect("units are available"));
    let images = images_of(&two.segment, || drop((third, budgets)));
    assert!(images.len() >= 4, "{} images", images.len());
    for image in &images {
        assert_recovers(image, &[0, 2], OTHERS, "leave");
        let copy = attach(&with_dead(image, &[0, 2])).expect("a segment");
        assert_usable(&copy.budget("another", LIMIT).expect("room"), 0, "another budget");
    }
    // Whoever goes on finds the slot free, or frees it, before it has returned everything.
    let last = images.last().expect("an image");
    assert_recovers(last, &[0], OTHERS, "left");
}

// Whoever goes on with a killed process's segment may be killed too.
fn recoveries_may_be_killed() {
    let mut recoveries = 0;
    // Each recovery takes many steps.
    let calls = [CALLS[0], CALLS[4], CALLS[5], CALLS[8], CALLS[10]];
    let (state, prepare) = STATES[3];
    for (call, act) in calls.into_iter().skip(if scale::is_quick() { 3 } else { 0 }) {
        let two = Two::new();
        prepare(&two);
        let images = images_of(&two.segment, || act(&two));
        // One after its commit.
        let image = images.get(1).expect("an image");
        let copy = attach(&with_dead(image, &[0])).expect("a segment");
        let recovering = budget(&copy);
        let what = format!("recovery after {state}, {call}");
        let recovered = images_of(&copy, || assert_eq!(recovering.acquired(), OTHERS));
        recoveries += recovered.len();
        for image in recovered {
            assert_recovers(&image, &[0, 2], OTHERS, &what);
        }
    }
    assert!(recoveries >= 8, "{recoveries} images of recoveries");
}

/// Returns two participants for signal handlers.
fn shared() -> &'static Two {
    static SHARED: OnceLock<Two> = OnceLock::new();
    SHARED.get_or_init(Two::new)
}

/// Does 200 operations as the other participant, which change nothing in the end.
fn disturb() {
    static STOPS: AtomicUsize = AtomicUsize::new(0);
    // Another thread may have that CPU for a while.
    let moves = STOPS.fetch_add(1, SeqCst).is_multiple_of(32);
    let other = &shared().other;
    for round in 0..50_u64 {
        if moves && round == 25 {
            pin::pin(1);
        }
        if other.try_acquire(1 + round % 9).is_ok() {
            other.release(1 + round % 9);
        }
        match round % 4 {
            0 => _ = other.try_acquire(LIMIT),
            1 => _ = other.available(),
            2 => {
                other.set_limit(LIMIT + 1);
                other.set_limit(LIMIT);
            }
            _ => {
                if other.acquire_timeout(3, Duration::ZERO).is_ok() {
                    other.release(3);
                }
            }
        }
    }
    if moves {
        pin::pin(0);
    }
}

fn stopped_calls_go_on() {
    type Call = fn(&SharedBudget) -> bool;
    // What each call changes in the units held, and the distance of its stops.
    let calls: [(&str, i64, u64, Call); 7] = [
        ("acquire", 1, 5, |own| own.try_acquire(1).is_ok()),
        ("large acquire", 40, 5, |own| own.try_acquire(40).is_ok()),
        ("release", -1, 5, |own| {
            own.release(1);
            true
        }),
        ("large release", -20, 5, |own| {
            own.release(20);
            true
        }),
        ("refusal", 0, 41, |own| {
            assert!(own.try_acquire(LIMIT).is_err());
            true
        }),
        ("look", 0, 41, |own| {
            // The other participant has 10 to 19 units.
            let available = own.available();
            assert!((71 - OTHERS..=81 - OTHERS).contains(&(available + 1)), "{available}");
            true
        }),
        ("wait", 0, 131, |own| own.acquire_timeout(LIMIT, Duration::ZERO).is_err()),
    ];
    pin::pin(0);
    for (what, change, distance, call) in calls {
        let own = &shared().own;
        let check = |steps, _, is_done: bool| {
            assert!(is_done, "{what}, stopped after {steps}");
            let expected = 20 + OTHERS as i64 + change;
            assert_eq!(own.acquired() as i64, expected, "{what}, stopped after {steps}");
            // Back to 20.
            match change {
                0 => {}
                1.. => own.release(change as u64),
                _ => own.try_acquire(change.unsigned_abs()).expect("units are available"),
            }
            assert_eq!((own.limit(), own.waiters()), (LIMIT, 0), "{what}, after {steps}");
        };
        let distance = distance * if scale::is_quick() { 7 } else { 1 };
        let stops = at_every_nth_step(distance, || call(own), disturb, check);
        assert!(stops > 4, "{what}: {stops} stops");
    }
}

fn processes_go_on_when_one_is_killed() {
    let two = Two::new();
    let calls = || {
        two.own.try_acquire(30).expect("units are available");
        two.own.release(7);
        assert!(two.own.try_acquire(LIMIT).is_err());
        let _ = two.own.acquire_timeout(LIMIT, Duration::ZERO);
        two.own.release(3);
        two.own.set_limit(LIMIT);
    };
    let kills = at_kills(kill_distance(1201), calls, |steps| {
        until(|| two.other.acquired() == 20 + OTHERS);
        assert_usable(&two.other, 20 + OTHERS, &format!("killed after {steps}"));
    });
    assert!(kills > 3, "{kills} kills");
    assert_recovers(&image_of(&two.segment), &[0], OTHERS, "at the end");
}

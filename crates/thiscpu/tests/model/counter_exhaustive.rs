//! Counters in every order of steps, with weak memory.
//!
//! The tests are small, because the number of orders grows fast. In most of them a thread carries a
//! token: it adds 1 on one CPU, moves, and subtracts 1 on another. The value is always 0 or 1, but
//! a sum that reads lanes one after the other may get -1.

use std::ops::RangeInclusive;

use thiscpu::model;
use thiscpu::{Bounds, Counter, Counters, PerCpu, sum_all};

use crate::counter_history::take_lanes;
use crate::run::in_every_order;

static COUNTERS: Counters<2> = Counters::new();
static OTHERS: Counters<2> = Counters::new();

/// Starts a thread that carries a token from CPU 1 to CPU 2.
fn carrier() -> model::Thread<()> {
    model::spawn(1, || {
        COUNTERS.add(0, 1);
        model::run_on(2);
        COUNTERS.add(0, -1);
    })
}

/// Calls `ask` while a token moves, with lanes on the first `cpus` CPUs.
fn while_token_moves(preemptions: usize, cpus: usize, ask: fn()) {
    in_every_order(preemptions, move || {
        take_lanes(&COUNTERS, cpus);
        let carrier = carrier();
        ask();
        carrier.join();
        assert_eq!(COUNTERS.sum(0), 0);
    });
}

fn assert_token(sum: i64) {
    assert!(sum == 0 || sum == 1, "the token was seen {sum} times");
}

#[test]
fn sum_sees_moving_token_once() {
    while_token_moves(3, 3, || assert_token(COUNTERS.sum(0)));
}

#[test]
fn sum_sees_token_once_when_lane_comes_into_use() {
    while_token_moves(3, 2, || assert_token(COUNTERS.sum(0)));
}

#[test]
fn sum_sees_token_once_when_it_moves_to_shared_lane() {
    in_every_order(3, || {
        take_lanes(&COUNTERS, 2);
        let carrier = model::spawn(1, move || {
            COUNTERS.add(0, 1);
            model::leave_lanes();
            COUNTERS.add(0, -1);
        });
        assert_token(COUNTERS.sum(0));
        carrier.join();
    });
}

// Two sums flip the gate back to its first bank, so an adder's stale view of the gate looks fresh.
#[test]
fn consecutive_sums_see_moving_token_once() {
    while_token_moves(3, 3, || {
        assert_token(COUNTERS.sum(0));
        assert_token(COUNTERS.sum(0));
    });
}

// Two sums flip the gate back while a thread without a lane adds to the shared lane.
#[test]
fn consecutive_sums_see_token_once_without_lane() {
    in_every_order(3, || {
        take_lanes(&COUNTERS, 1);
        let carrier = model::spawn(1, move || {
            model::leave_lanes();
            COUNTERS.add(0, 1);
            COUNTERS.add(0, -1);
        });
        assert_token(COUNTERS.sum(0));
        assert_token(COUNTERS.sum(0));
        carrier.join();
    });
}

// A token moves in one of two counters that are summed at once.
#[test]
fn sum_all_sees_moving_token_once() {
    in_every_order(2, || {
        take_lanes(&COUNTERS, 3);
        take_lanes(&OTHERS, 1);
        OTHERS.add(1, 5);
        let carrier = carrier();
        let sums = sum_all(&[&OTHERS, &COUNTERS]);
        assert_eq!(sums[..2], [0, 5]);
        assert_token(sums[2]);
        carrier.join();
        assert_eq!(sum_all(&[&COUNTERS, &OTHERS]), [0, 0, 0, 5]);
    });
}

// Another thread sums the counter between the steps of a `sum_all`.
#[test]
fn sum_is_exact_during_sum_all() {
    while_token_moves(2, 3, || {
        let other = model::spawn(0, || assert_token(COUNTERS.sum(0)));
        assert_token(sum_all(&[&COUNTERS])[0]);
        other.join();
    });
}

#[test]
fn concurrent_sums_may_share_a_flip() {
    while_token_moves(2, 3, || {
        let other = model::spawn(0, || assert_token(COUNTERS.sum(0)));
        assert_token(COUNTERS.sum(0));
        other.join();
    });
}

// Two threads sum different counters at once, and may share one fence.
#[test]
fn concurrent_sums_may_share_a_fence() {
    in_every_order(2, || {
        take_lanes(&COUNTERS, 3);
        take_lanes(&OTHERS, 1);
        let carrier = carrier();
        let other = model::spawn(0, move || OTHERS.sum(0));
        assert_token(COUNTERS.sum(0));
        carrier.join();
        assert_eq!(other.join(), 0);
    });
}

// A thread's sum includes its own earlier add, even if it shares another thread's flip.
#[test]
fn sum_includes_own_add() {
    in_every_order(2, || {
        take_lanes(&COUNTERS, 2);
        let other = model::spawn(1, || {
            COUNTERS.add(0, 1);
            COUNTERS.sum(0)
        });
        let sum = COUNTERS.sum(0);
        assert!(sum == 0 || sum == 1, "{sum}");
        assert_eq!(other.join(), 1);
    });
}

// Two threads arrive on a CPU that has no lane yet: one assigns the lane, the other finds it.
#[test]
fn lane_is_assigned_once_to_two_threads() {
    in_every_order(2, || {
        take_lanes(&COUNTERS, 2);
        let carrier = model::spawn(2, || {
            COUNTERS.add(0, 1);
            model::run_on(1);
            COUNTERS.add(0, -1);
        });
        let other = model::spawn(2, || COUNTERS.add(1, 1));
        assert_token(COUNTERS.sum(0));
        carrier.join();
        other.join();
    });
}

/// Adds two amounts on two threads of one CPU, and checks their sum.
fn add_on_one_lane(preemptions: usize, amounts: [i64; 2]) {
    in_every_order(preemptions, move || {
        take_lanes(&COUNTERS, 2);
        let adders = amounts.map(|n| model::spawn(1, move || COUNTERS.add(0, n)));
        adders.into_iter().for_each(model::Thread::join);
        assert_eq!(COUNTERS.sum(0), amounts.iter().sum());
    });
}

// Two threads share a CPU and abort each other's sections: each add counts exactly once.
#[test]
fn adds_on_one_lane_are_exact() {
    add_on_one_lane(3, [1, 20]);
}

// Two threads of one CPU and one thread without a lane use the same word.
#[test]
fn word_ops_are_exact_with_and_without_lane() {
    in_every_order(2, || {
        // Every execution gives it the same lane memory, because that starts afresh.
        let words: &PerCpu<u64> = Box::leak(Box::new(PerCpu::new()));
        model::run_on(1);
        words.add(1);
        let adder = model::spawn(1, || words.add(10));
        let returner = model::spawn(1, || words.add_return(100));
        model::leave_lanes();
        words.add(1000);
        adder.join();
        let returned = returner.join();
        assert!(returned == 101 || returned == 111, "{returned}");
        assert_eq!(words.lanes().sum::<u64>(), 1111);
    });
}

/// A counter with the smallest windows: they hold -119 to 136 at first.
static NARROW: Counter = Counter::with_batch(2);

/// Gives `NARROW` a lane on CPU 1 only, and adds `count` there.
///
/// So the bounds contain no other lane's slack.
fn begin_narrow(count: i64) {
    model::run_on(1);
    for _ in 0..20 {
        NARROW.add(1);
        NARROW.add(-1);
    }
    NARROW.add(count);
    model::run_on(0);
}

/// Asserts that the bounds contain one of the values that the counter may have.
fn assert_bounds(values: RangeInclusive<i64>) {
    let Bounds { low, high, .. } = NARROW.bounds();
    assert!(low <= *values.end() && *values.start() <= high, "{low}..={high}, not {values:?}");
}

// One thread widens the window for its add, and the other uses the room: by then it is published.
#[test]
fn bounds_hold_when_window_grows() {
    in_every_order(2, || {
        begin_narrow(0);
        let maker = model::spawn(1, || NARROW.add(200));
        let user = model::spawn(1, || {
            NARROW.add(300);
            assert_bounds(300..=500);
        });
        maker.join();
        user.join();
        assert_bounds(500..=500);
    });
}

// One thread moves the window up while the other adds in the old window: bounds contain both.
#[test]
fn bounds_hold_when_window_moves_away() {
    in_every_order(2, || {
        begin_narrow(120);
        let mover = model::spawn(1, || NARROW.add(20));
        let user = model::spawn(1, || {
            NARROW.add(-200);
            assert_bounds(-80..=-60);
        });
        mover.join();
        user.join();
        assert_bounds(-60..=-60);
    });
}

// A large add changes the count of the lane, and a small one restores delta: only the version tells
// another adder that its view of the count is old.
#[test]
fn bounds_hold_when_large_add_meets_small_one() {
    in_every_order(2, || {
        // The last small add has left a delta of -1.
        begin_narrow(0);
        let adders = [&[100, -1][..], &[60]];
        let adders =
            adders.map(|adds| model::spawn(1, || adds.iter().for_each(|&n| NARROW.add(n))));
        adders.into_iter().for_each(model::Thread::join);
        assert_bounds(159..=159);
    });
}

// Several adds move one window; each move is published once.
#[test]
fn bounds_hold_after_two_window_moves() {
    in_every_order(2, || {
        begin_narrow(120);
        let movers = [&[20][..], &[30, 40]];
        let movers =
            movers.map(|adds| model::spawn(1, || adds.iter().for_each(|&n| NARROW.add(n))));
        movers.into_iter().for_each(model::Thread::join);
        // The adds reach the lower edge of the window.
        model::run_on(1);
        for value in (0..=210).rev().step_by(30) {
            assert_bounds(value..=value);
            NARROW.add(-30);
        }
    });
}

// Units are added in the shared lane and then taken out of a lane, whose window follows them.
#[test]
fn bounds_hold_when_units_move_to_shared_lane() {
    const STEP: i64 = 64;
    const STEPS: i64 = 4;
    in_every_order(2, || {
        begin_narrow(0);
        let mover = model::spawn(1, || {
            let adder = model::spawn(1, || {
                model::leave_lanes();
                NARROW.add(STEPS * STEP);
            });
            adder.join();
            (0..STEPS).for_each(|_| NARROW.add(-STEP));
        });
        assert_bounds(0..=STEPS * STEP);
        mover.join();
        assert_bounds(0..=0);
    });
}

// Adds leave the lane's window, so it is moved and published.
#[test]
fn adds_are_exact_when_window_moves() {
    add_on_one_lane(2, [3_000, -20_000]);
}

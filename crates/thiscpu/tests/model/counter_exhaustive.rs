//! Counters in every order of steps, with weak memory. Small, because the number of orders is not.
//!
//! A thread that carries a token adds 1 on one CPU, moves, and takes 1 away on another, so the
//! value is always 0 or 1, and lanes added up one after the other give -1.

use std::ops::RangeInclusive;

use thiscpu::model::{self, Machine, exhaustive};
use thiscpu::{Bounds, Counter, Counters, PerCpu, Tier, sum_all};

use crate::counter_history::take_lanes;

static COUNTERS: Counters<2> = Counters::new();
static OTHERS: Counters<2> = Counters::new();

const TIERS: [Tier; 2] = [Tier::RseqCpu, Tier::Atomic];

/// A thread that takes a token from CPU 1 to CPU `to`.
fn carrier(to: usize) -> model::Thread<()> {
    model::spawn(1, move || {
        COUNTERS.add(0, 1);
        model::run_on(to);
        COUNTERS.add(0, -1);
    })
}

/// Runs `test` in every order with up to `preemptions` preemptions, in each kind of tier.
fn in_every_order(preemptions: usize, test: fn()) {
    for tier in TIERS {
        let orders = exhaustive(Machine::new(3, tier), preemptions, test);
        println!("{tier}: {orders} orders");
    }
}

fn assert_token(sum: i64) {
    assert!(sum == 0 || sum == 1, "the token was seen {sum} times");
}

#[test]
fn sum_sees_moving_token_once() {
    in_every_order(3, || {
        take_lanes(&COUNTERS, 3);
        let carrier = carrier(2);
        assert_token(COUNTERS.sum(0));
        carrier.join();
        assert_eq!(COUNTERS.sum(0), 0);
    });
}

#[test]
fn sum_sees_token_once_when_lane_comes_into_use() {
    in_every_order(3, || {
        take_lanes(&COUNTERS, 2);
        let carrier = carrier(2);
        assert_token(COUNTERS.sum(0));
        carrier.join();
    });
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

/// Two sums turn the gate back to the bank where it was, so that what an adder has seen of it looks
/// fresh and is not.
#[test]
fn consecutive_sums_see_moving_token_once() {
    in_every_order(3, || {
        take_lanes(&COUNTERS, 3);
        let carrier = carrier(2);
        assert_token(COUNTERS.sum(0));
        assert_token(COUNTERS.sum(0));
        carrier.join();
    });
}

/// The same with both adds in the slow lane.
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

/// Two counters among which a token moves, so that a part of one sum may be forgotten, and a sum of one between the looks at it.
#[test]
fn sum_all_sees_moving_token_once() {
    in_every_order(2, || {
        take_lanes(&COUNTERS, 3);
        take_lanes(&OTHERS, 1);
        OTHERS.add(1, 5);
        let carrier = carrier(2);
        let sums = sum_all(&[&OTHERS, &COUNTERS]);
        assert_eq!(sums[..2], [0, 5]);
        assert_token(sums[2]);
        carrier.join();
        assert_eq!(sum_all(&[&COUNTERS, &OTHERS]), [0, 0, 0, 5]);
    });
}

#[test]
fn sum_is_exact_during_sum_all() {
    in_every_order(2, || {
        take_lanes(&COUNTERS, 3);
        let carrier = carrier(2);
        let other = model::spawn(0, move || assert_token(COUNTERS.sum(0)));
        assert_token(sum_all(&[&COUNTERS])[0]);
        carrier.join();
        other.join();
    });
}

#[test]
fn concurrent_sums_may_share_a_flip() {
    in_every_order(2, || {
        take_lanes(&COUNTERS, 3);
        let carrier = carrier(2);
        let other = model::spawn(0, move || assert_token(COUNTERS.sum(0)));
        assert_token(COUNTERS.sum(0));
        carrier.join();
        other.join();
    });
}

/// Two counters, summed at once: their fences may be one.
#[test]
fn concurrent_sums_may_share_a_fence() {
    in_every_order(2, || {
        take_lanes(&COUNTERS, 3);
        take_lanes(&OTHERS, 1);
        let carrier = carrier(2);
        let other = model::spawn(0, move || OTHERS.sum(0));
        assert_token(COUNTERS.sum(0));
        carrier.join();
        assert_eq!(other.join(), 0);
    });
}

/// A thread's own add is in a sum that it asks for afterwards, also when it is given another's.
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

/// Two threads come to a CPU that has no lane yet: one takes it into use, the other finds it.
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

/// Two threads on one CPU: one aborts the other, and neither's add is lost or done twice.
#[test]
fn adds_on_one_lane_are_exact() {
    in_every_order(3, || {
        take_lanes(&COUNTERS, 2);
        let adder = |n| model::spawn(1, move || COUNTERS.add(0, n));
        let adders = [adder(1), adder(20)];
        adders.into_iter().for_each(model::Thread::join);
        assert_eq!(COUNTERS.sum(0), 21);
    });
}

/// Words of one lane, from two threads of its CPU and one that has no lane.
#[test]
fn word_ops_are_exact_with_and_without_lane() {
    in_every_order(2, || {
        // The same address in each execution, because the memory of lanes is.
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

/// A counter whose windows are as small as they can be: they hold -120 to 135 at first.
static NARROW: Counter = Counter::with_batch(2);

/// Spreads it over CPU 1 alone, so that no other lane's slack is in the bounds, and adds `count`.
fn begin_narrow(count: i64) {
    model::run_on(1);
    for _ in 0..20 {
        NARROW.add(1);
        NARROW.add(-1);
    }
    NARROW.add(count);
    model::run_on(0);
}

/// The bounds hold one of the values that the counter may have.
fn assert_bounds(values: RangeInclusive<i64>) {
    let Bounds { low, high, .. } = NARROW.bounds();
    assert!(low <= *values.end() && *values.start() <= high, "{low}..={high}, not {values:?}");
}

/// One thread makes room for its add, the other uses it at once: by then it is published.
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

/// One thread moves the window up, the other adds where it was: until it is gone, that is published.
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

/// Several adds want to move one window; each move is published once.
#[test]
fn bounds_hold_after_two_window_moves() {
    in_every_order(2, || {
        begin_narrow(120);
        let movers = [&[20][..], &[30, 40]];
        let movers =
            movers.map(|adds| model::spawn(1, || adds.iter().for_each(|&n| NARROW.add(n))));
        movers.into_iter().for_each(model::Thread::join);
        // Down to the edge of the window, wherever it is now.
        model::run_on(1);
        for value in (0..=210).rev().step_by(30) {
            assert_bounds(value..=value);
            NARROW.add(-30);
        }
    });
}

/// Adds that leave the lane's window, so that it is moved and published.
#[test]
fn adds_are_exact_when_window_moves() {
    in_every_order(2, || {
        take_lanes(&COUNTERS, 2);
        let adder = |n| model::spawn(1, move || COUNTERS.add(0, n));
        let adders = [adder(3_000), adder(-20_000)];
        adders.into_iter().for_each(model::Thread::join);
        assert_eq!(COUNTERS.sum(0), -17_000);
    });
}

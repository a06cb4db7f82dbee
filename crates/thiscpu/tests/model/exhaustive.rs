//! Counters in every order of steps, with weak memory. Small, because the number of orders is not.
//!
//! A thread that carries a token adds 1 on one CPU, moves, and takes 1 away on another, so the
//! value is always 0 or 1, and lanes added up one after the other give -1.

use thiscpu::model::{self, Machine, exhaustive};
use thiscpu::{Counters, Tier};

use crate::record::take_lanes;

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
fn a_sum_while_a_token_moves() {
    in_every_order(3, || {
        take_lanes(&COUNTERS, 3);
        let carrier = carrier(2);
        assert_token(COUNTERS.sum(0));
        carrier.join();
        assert_eq!(COUNTERS.sum(0), 0);
    });
}

#[test]
fn a_sum_while_a_lane_comes_into_use() {
    in_every_order(3, || {
        take_lanes(&COUNTERS, 2);
        let carrier = carrier(2);
        assert_token(COUNTERS.sum(0));
        carrier.join();
    });
}

#[test]
fn a_sum_while_a_token_moves_to_the_slow_lane() {
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
fn two_sums_in_a_row_while_a_token_moves() {
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
fn two_sums_in_a_row_while_a_thread_has_no_lane() {
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

#[test]
fn two_sums_share_a_flip_or_do_not() {
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
fn two_sums_share_a_fence_or_do_not() {
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

/// Two threads on one CPU: one aborts the other, and neither's add is lost or done twice.
#[test]
fn adds_on_one_lane() {
    in_every_order(3, || {
        take_lanes(&COUNTERS, 2);
        let adder = |n| model::spawn(1, move || COUNTERS.add(0, n));
        let adders = [adder(1), adder(20)];
        adders.into_iter().for_each(model::Thread::join);
        assert_eq!(COUNTERS.sum(0), 21);
    });
}

/// Adds that leave the lane's window, so that it is moved and published.
#[test]
fn windows_that_move() {
    in_every_order(3, || {
        take_lanes(&COUNTERS, 2);
        let adder = |n| model::spawn(1, move || COUNTERS.add(0, n));
        let adders = [adder(3_000), adder(-20_000)];
        adders.into_iter().for_each(model::Thread::join);
        assert_eq!(COUNTERS.sum(0), -17_000);
    });
}

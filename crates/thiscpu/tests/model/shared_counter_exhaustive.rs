//! Shared counters in every order of steps, with weak memory.
//!
//! Another process is another thread here. Nobody waits for a thread of these protocols, so a
//! process that dies between two steps leaves the state that a stopped thread leaves: the orders in
//! which a thread takes its last steps after all others have ended include every death.

use thiscpu::model::{self, Data, SharedCounters};

use crate::run::in_every_order;

/// The lanes of CPU 0 and CPU 1.
const LANES: usize = 2;
/// An amount that is saved at once, so that it opens a bank by an exchange.
const LARGE: i64 = 2000;

static COUNTER: SharedCounters<1, LANES> = SharedCounters::new();
static GROUP: SharedCounters<2, LANES> = SharedCounters::new();

/// Puts both banks of each lane into use, and runs on CPU 0.
///
/// Those of negative amounts stay unused: their lanes come into use while a token moves.
fn prepare<const N: usize>(counters: &SharedCounters<N, LANES>) {
    for _ in 0..2 {
        for cpu in 0..LANES {
            model::run_on(cpu);
            (0..N).for_each(|counter| counters.add(counter, LARGE));
        }
        counters.sum();
    }
    model::run_on(0);
}

/// Returns the sums without those of `prepare`.
fn sums<const N: usize>(counters: &SharedCounters<N, LANES>) -> [i64; N] {
    counters.sum().map(|sum| sum - 2 * LANES as i64 * LARGE)
}

fn assert_token() {
    let [sum] = sums(&COUNTER);
    assert!(sum == 0 || sum == 1, "the token was seen {sum} times");
}

/// Starts a thread that carries a token from CPU 0 to CPU 1.
fn carrier() -> model::Thread<()> {
    model::spawn(0, || {
        COUNTER.add(0, 1);
        model::run_on(1);
        COUNTER.add(0, -1);
    })
}

fn while_token_moves(preemptions: usize, ask: fn()) {
    in_every_order(preemptions, move || {
        prepare(&COUNTER);
        let carrier = carrier();
        ask();
        carrier.join();
        assert_eq!(sums(&COUNTER), [0]);
    });
}

#[test]
fn sum_sees_moving_token_once() {
    while_token_moves(3, assert_token);
}

// The banks take turns. An adder that has loaded the epoch before the first sum comes back while
// the second one is between its two looks at that bank.
#[test]
fn consecutive_sums_see_moving_token_once() {
    in_every_order(3, || {
        prepare(&COUNTER);
        let summer = model::spawn(1, || {
            assert_token();
            assert_token();
        });
        COUNTER.add(0, 1);
        model::run_on(1);
        COUNTER.add(0, -1);
        summer.join();
        assert_eq!(sums(&COUNTER), [0]);
    });
}

// The unit is taken before it is given, so a sum that misses new banks sees it twice.
#[test]
fn sum_sees_banks_that_come_into_use() {
    in_every_order(3, || {
        prepare(&COUNTER);
        let carrier = model::spawn(0, || {
            COUNTER.add(0, -1);
            model::run_on(1);
            COUNTER.add(0, 1);
        });
        let [sum] = sums(&COUNTER);
        assert!(sum == 0 || sum == -1, "{sum}");
        carrier.join();
        assert_eq!(sums(&COUNTER), [0]);
    });
}

#[test]
fn concurrent_sums_see_token_once() {
    // A single lane, because three threads have many orders.
    static COUNTER: SharedCounters<1, 1> = SharedCounters::new();
    let assert_token = || assert!([0, 1].contains(&COUNTER.sum()[0]));
    in_every_order(1, move || {
        let carrier = model::spawn(0, || {
            COUNTER.add(0, 1);
            COUNTER.add(0, -1);
        });
        let other = model::spawn(0, assert_token);
        assert_token();
        other.join();
        carrier.join();
        assert_eq!(COUNTER.sum(), [0]);
    });
}

// The unit is in both counters for a moment, and never in none.
#[test]
fn group_has_one_instant() {
    in_every_order(2, || {
        prepare(&GROUP);
        let mover = model::spawn(0, || {
            GROUP.add(1, 1);
            model::run_on(1);
            GROUP.add(0, -1);
        });
        let [from, to] = sums(&GROUP);
        assert!([0, 1].contains(&(from + to)), "{from} and {to}");
        mover.join();
        assert_eq!(sums(&GROUP), [-1, 1]);
    });
}

// Two adders that open one bank at once: one of them adds to the bank that the other has opened.
#[test]
fn adds_that_open_a_bank_are_counted() {
    in_every_order(3, || {
        prepare(&COUNTER);
        let adder = model::spawn(0, || COUNTER.add(0, 1));
        COUNTER.add(0, LARGE);
        let [sum] = sums(&COUNTER);
        assert!([LARGE, LARGE + 1].contains(&sum), "{sum}");
        adder.join();
        assert_eq!(sums(&COUNTER), [LARGE + 1]);
    });
}

#[test]
fn writes_before_an_add_happen_before_a_sum_with_it() {
    static WRITTEN: Data = Data::zeroed();
    in_every_order(3, || {
        prepare(&COUNTER);
        let adder = model::spawn(0, || {
            WRITTEN.write(1);
            COUNTER.add(0, 1);
        });
        if sums(&COUNTER) == [1] {
            assert_eq!(WRITTEN.read(), 1, "the sum counts the add, but not what preceded it");
        }
        adder.join();
    });
}

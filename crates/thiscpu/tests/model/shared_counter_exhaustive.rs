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

/// The banks at the beginning of an execution.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Banks {
    /// Those of positive amounts are sealed, and those of negative amounts not in use.
    Positive,
    /// All are in use and sealed.
    Sealed,
    /// All are in use, and the active ones are open.
    Open,
}

/// Puts the banks of each lane into use, and runs on CPU 0.
fn prepare<const N: usize>(counters: &SharedCounters<N, LANES>, banks: Banks) {
    let add_in_each_lane = |amount| {
        for cpu in 0..LANES {
            model::run_on(cpu);
            (0..N).for_each(|counter| counters.add(counter, amount));
        }
    };
    for round in 0..3 {
        add_in_each_lane(LARGE);
        if banks != Banks::Positive {
            add_in_each_lane(-LARGE);
        }
        if round < 2 || banks != Banks::Open {
            counters.sum();
        }
    }
    model::run_on(0);
}

/// Returns the sums without the amounts of [`prepare`].
fn sums<const N: usize>(counters: &SharedCounters<N, LANES>, banks: Banks) -> [i64; N] {
    let prepared = if banks == Banks::Positive { 3 * LANES as i64 * LARGE } else { 0 };
    counters.sum().map(|sum| sum - prepared)
}

fn assert_token(banks: Banks) {
    let [sum] = sums(&COUNTER, banks);
    assert!(sum == 0 || sum == 1, "the token was seen {sum} times");
}

/// Adds a token on CPU 0, and takes it away on CPU 1.
fn carry_token() {
    model::run_on(0);
    COUNTER.add(0, 1);
    model::run_on(1);
    COUNTER.add(0, -1);
}

#[test]
fn sum_sees_moving_token_once() {
    for banks in [Banks::Sealed, Banks::Open] {
        in_every_order(3, move || {
            prepare(&COUNTER, banks);
            let carrier = model::spawn(0, carry_token);
            assert_token(banks);
            carrier.join();
            assert_eq!(sums(&COUNTER, banks), [0]);
        });
    }
}

// The banks take turns. An adder that has loaded the epoch before the first sum comes back while
// the second one is between its two looks at that bank.
#[test]
fn consecutive_sums_see_moving_token_once() {
    for banks in [Banks::Sealed, Banks::Open] {
        in_every_order(2, move || {
            prepare(&COUNTER, banks);
            let summer = model::spawn(1, move || {
                assert_token(banks);
                assert_token(banks);
            });
            carry_token();
            summer.join();
            assert_eq!(sums(&COUNTER, banks), [0]);
        });
    }
}

// The unit is taken before it is given, so a sum that misses new banks sees it twice.
#[test]
fn sum_sees_banks_that_come_into_use() {
    in_every_order(3, || {
        prepare(&COUNTER, Banks::Positive);
        let carrier = model::spawn(0, || {
            COUNTER.add(0, -1);
            model::run_on(1);
            COUNTER.add(0, 1);
        });
        let [sum] = sums(&COUNTER, Banks::Positive);
        assert!(sum == 0 || sum == -1, "{sum}");
        carrier.join();
        assert_eq!(sums(&COUNTER, Banks::Positive), [0]);
    });
}

// A view reads a bank while its delta is saved: it sees the amount or not, and the delta once.
#[test]
fn view_sees_saved_delta_once() {
    in_every_order(3, || {
        prepare(&COUNTER, Banks::Positive);
        // The first amount opens the bank and is saved; the second one is the delta.
        COUNTER.add(0, 5);
        COUNTER.add(0, 5);
        let before = 3 * LANES as i64 * LARGE + 10;
        let adder = model::spawn(0, || COUNTER.add(0, LARGE));
        let count = COUNTER.count_positive(0);
        assert!(count.is_none_or(|it| [before, before + LARGE].contains(&it)), "{count:?}");
        adder.join();
        assert_eq!(COUNTER.count_positive(0), Some(before + LARGE));
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
        prepare(&GROUP, Banks::Sealed);
        let mover = model::spawn(0, || {
            GROUP.add(1, 1);
            model::run_on(1);
            GROUP.add(0, -1);
        });
        let [from, to] = sums(&GROUP, Banks::Sealed);
        assert!([0, 1].contains(&(from + to)), "{from} and {to}");
        mover.join();
        assert_eq!(sums(&GROUP, Banks::Sealed), [-1, 1]);
    });
}

// Two adders that open one bank at once: one of them adds to the bank that the other has opened.
#[test]
fn adds_that_open_a_bank_are_counted() {
    in_every_order(3, || {
        prepare(&COUNTER, Banks::Sealed);
        let adder = model::spawn(0, || COUNTER.add(0, 1));
        COUNTER.add(0, LARGE);
        let [sum] = sums(&COUNTER, Banks::Sealed);
        assert!([LARGE, LARGE + 1].contains(&sum), "{sum}");
        adder.join();
        assert_eq!(sums(&COUNTER, Banks::Sealed), [LARGE + 1]);
    });
}

#[test]
fn writes_before_an_add_happen_before_a_sum_with_it() {
    static WRITTEN: Data = Data::zeroed();
    in_every_order(3, || {
        prepare(&COUNTER, Banks::Sealed);
        let adder = model::spawn(0, || {
            WRITTEN.write(1);
            COUNTER.add(0, 1);
        });
        if sums(&COUNTER, Banks::Sealed) == [1] {
            assert_eq!(WRITTEN.read(), 1, "the sum counts the add, but not what preceded it");
        }
        adder.join();
    });
}

// A sum of the other counter ends an epoch between the adder's look at it and its exchange.
#[test]
fn sum_of_one_counter_hides_no_add_of_another() {
    in_every_order(3, || {
        prepare(&GROUP, Banks::Positive);
        let adder = model::spawn(0, || GROUP.add(0, LARGE));
        GROUP.sum_one(1);
        let [sum, _] = sums(&GROUP, Banks::Positive);
        assert!([0, LARGE].contains(&sum), "{sum}");
        adder.join();
        assert_eq!(sums(&GROUP, Banks::Positive), [LARGE, 0]);
    });
}

//! Rates under long random runs, while the clock goes on: no span of time has too much, and no call
//! is refused wrongly.

use std::time::Duration;

use thiscpu::{Pace, Rate, RateWindow, model};
use thiscpu_test_support::rate_oracle::{Bucket, Call, Window};

use crate::run::{CPUS, in_random_orders, leave_lanes_if, on_threads};

/// The burst: with it, each of three lanes has eight units, the fewest that are lent.
const BURST: u64 = 192;
const SHARE: u64 = BURST / 8;
/// A unit comes in so many nanoseconds.
const UNIT_NS: u64 = 100;

/// Calls that begin or end at one time of the clock are told apart by their order.
///
/// The checks see times that are finer than those of the rate, by less than a nanosecond. So they
/// allow a unit more.
const TICKS: u64 = 1 << 20;

fn time() -> u64 {
    model::clock() * TICKS + model::tick()
}

/// Makes a rate in per-CPU mode, in which each CPU's lane may borrow.
fn percpu_rate() -> &'static Rate {
    // Leaked, because no other rate may have this address in the same execution.
    let rate: &Rate =
        Box::leak(Box::new(Rate::new(Pace::per(1, Duration::from_nanos(UNIT_NS)), BURST)));
    for cpu in (0..CPUS).chain(0..CPUS) {
        model::run_on(cpu);
        for _ in 0..40 {
            let _ = rate.try_acquire(1);
            model::advance_clock(UNIT_NS);
        }
    }
    model::run_on(0);
    rate
}

/// Makes a thread's random calls, while time passes or stands still.
fn calls(count: usize, acquire: impl Fn(u64) -> bool) -> Vec<Call> {
    let mut calls = Vec::new();
    for _ in 0..count {
        match model::choose(4) {
            0 => model::advance_clock(model::choose(3_000) as u64),
            choice => {
                let units =
                    [1, 1, 2, 5, 8, 30, 150][model::choose(if choice == 1 { 7 } else { 5 })];
                let began = time();
                let is_admitted = acquire(units);
                calls.push(Call { began, ended: time(), units, is_admitted });
            }
        }
    }
    calls
}

fn check(calls: &[Call]) {
    let pace = (1, UNIT_NS * TICKS);
    let excess = Bucket { pace, burst: BURST + 1 }.excess(calls);
    assert_eq!(excess, 0, "{excess} too many: {calls:#?}");
    let wrong = Bucket { pace, burst: BURST - SHARE - 1 }.wrong_refusal(calls);
    assert_eq!(wrong, None, "{calls:#?}");
}

// Long sequences of a thread that moves between CPUs, with a few calls of another one.
#[test]
fn sequences_keep_the_rate() {
    in_random_orders(6_000, || {
        let rate = percpu_rate();
        let work = move |thread| {
            calls([120, 5][thread], |units| {
                model::run_on(model::choose(CPUS));
                rate.try_acquire(units).is_ok()
            })
        };
        check(&on_threads(2, CPUS, work).concat());
    });
}

#[test]
fn random_calls_keep_the_rate() {
    in_random_orders(4_000, || {
        let rate = percpu_rate();
        let work = move |thread| {
            leave_lanes_if(thread == 3);
            calls(12, |units| rate.try_acquire(units).is_ok())
        };
        check(&on_threads(4, CPUS, work).concat());
    });
}

// Whatever the terms become, the rate is never above that of the most generous ones.
#[test]
fn new_terms_keep_the_rate() {
    in_random_orders(2_000, || {
        let rate = percpu_rate();
        let work = move |thread| {
            calls(8, |units| {
                if thread == 0 {
                    let periods = [1, 3, 1_000].map(|n| Duration::from_nanos(n * UNIT_NS));
                    rate.set_pace(Pace::per(1, periods[model::choose(3)]));
                    rate.set_burst([BURST, 100, 1][model::choose(3)]).expect("a burst");
                }
                rate.try_acquire(units).is_ok()
            })
        };
        let calls = on_threads(3, CPUS, work).concat();
        let bucket = Bucket { pace: (1, UNIT_NS * TICKS), burst: BURST + 1 };
        assert_eq!(bucket.excess(&calls), 0, "{calls:#?}");
    });
}

// All waiters are served, in time.
#[test]
fn waiters_are_all_served() {
    in_random_orders(2_000, || {
        let rate = percpu_rate();
        on_threads(4, CPUS, move |thread| {
            for n in [[150, 10], [100, 30], [190, 1], [192, 1]][thread] {
                // The model's threads sleep for no time, so the clock goes on here.
                while rate.acquire_timeout(n, Duration::ZERO).is_err() {
                    model::advance_clock(5_000);
                }
            }
        });
        assert_eq!(rate.waiters(), 0);
    });
}

#[test]
fn windows_keep_their_limit() {
    const LIMIT: u64 = 40;
    const PERIOD: u64 = 640;
    in_random_orders(3_000, || {
        let window: &RateWindow =
            Box::leak(Box::new(RateWindow::new(LIMIT, Duration::from_nanos(PERIOD))));
        let work = move |_| {
            let mut calls = Vec::new();
            for _ in 0..12 {
                model::advance_clock([0, 0, 1, 9, 10, 11, 300][model::choose(7)]);
                let units = [1, 3, 10][model::choose(3)];
                let began = model::clock();
                let is_admitted = window.try_acquire(units).is_ok();
                calls.push(Call { began, ended: model::clock(), units, is_admitted });
            }
            calls
        };
        let calls = on_threads(3, CPUS, work).concat();
        let oracle = Window { limit: LIMIT, period: PERIOD };
        assert!(oracle.most(&calls) <= LIMIT, "{calls:#?}");
        assert_eq!(oracle.wrong_refusal(&calls), None, "{calls:#?}");
    });
}

/// A rate that gets no unit during a test.
static SLOW_RATE: Rate = Rate::new(SLOW, BURST);
static WINDOW: RateWindow = RateWindow::new(10, Duration::from_nanos(640));

const SLOW: Pace = Pace::per(1, Duration::from_secs(1 << 32));

/// Makes the lane of CPU 1 borrow.
fn lend() {
    model::run_on(1);
    SLOW_RATE.try_acquire(1).expect("units are available");
    model::run_on(0);
}

/// Puts the slow rate into per-CPU mode, and returns how many units it has.
fn slow_rate_to_percpu_mode() -> u64 {
    model::run_on(1);
    SLOW_RATE.try_acquire(1).expect("units are available");
    model::run_on(0);
    // Three quarters of the burst are left.
    (0..40).for_each(|_| SLOW_RATE.try_acquire(1).expect("units are available"));
    SLOW_RATE.available()
}

// Units that a lane borrows during a recall are counted once.
#[test]
fn recall_returns_concurrent_loan() {
    in_random_orders(4_000, || {
        let before = slow_rate_to_percpu_mode();
        let borrower = model::spawn(1, || SLOW_RATE.try_acquire(1).expect("units are available"));
        let available = SLOW_RATE.available();
        assert!(available == before || available == before - 1, "{available} of {before}");
        borrower.join();
        assert_eq!(SLOW_RATE.available(), before - 1);
        lend();
        assert_eq!(SLOW_RATE.try_acquire(before).unwrap_err().available(), before - 2);
    });
}

// One thread wants all units, another one unit of its lane: exactly one succeeds.
#[test]
fn one_of_two_conflicting_requests_succeeds() {
    in_random_orders(4_000, || {
        let before = slow_rate_to_percpu_mode() - 1;
        lend();
        let other = model::spawn(1, || SLOW_RATE.try_acquire(1).is_ok());
        let all = SLOW_RATE.try_acquire(before).is_ok();
        assert!(all != other.join());
        assert_eq!(SLOW_RATE.available(), if all { 0 } else { before - 1 });
    });
}

// A thread sees the old terms with the old bucket, or the new ones with the new.
#[test]
fn terms_and_bucket_change_together() {
    in_random_orders(4_000, || {
        SLOW_RATE.try_acquire(BURST - 100).expect("units are available");
        // A unit has a thousandth of its quanta then, so the old bucket would be full.
        let faster = Pace::per(1, Duration::from_secs(1 << 22));
        let changer = model::spawn(1, move || SLOW_RATE.set_pace(faster));
        assert_eq!(SLOW_RATE.try_acquire(101).unwrap_err().available(), 100);
        changer.join();
        assert_eq!(SLOW_RATE.available(), 100);
    });
}

// The units of a group return at one time, also while another thread takes more.
#[test]
fn window_counts_each_unit_once() {
    in_random_orders(4_000, || {
        WINDOW.try_acquire(6).expect("units are available");
        model::advance_clock(20);
        let other = model::spawn(1, || WINDOW.try_acquire(3).is_ok());
        let mine = WINDOW.try_acquire(3).is_ok();
        assert!(mine != other.join());
        model::advance_clock(640 - 20);
        assert_eq!(WINDOW.available(), 1);
        model::advance_clock(10);
        assert_eq!(WINDOW.available(), 7);
        model::advance_clock(20);
        assert_eq!(WINDOW.available(), 10);
    });
}

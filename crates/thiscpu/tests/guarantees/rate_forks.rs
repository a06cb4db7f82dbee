//! `Rate`: a forked child has the units of its parent, at whatever instruction it was forked.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use thiscpu::{__test_support as support, Pace, Rate};

use super::rate::{SLOW, has_lanes, to_percpu_mode};
use crate::common::{
    Scenario, Steps, TIERS, can_single_step, fork, fork_at_steps, scale, scenario,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(rate::child_is_exact_when_forked_during_acquire, TIERS).needs(can_single_step),
    scenario!(rate::child_is_exact_when_forked_during_recall, TIERS).needs(can_single_step),
    scenario!(rate::child_is_exact_when_forked_during_change, TIERS).needs(can_single_step).slow(),
    scenario!(rate::child_ignores_waiters_of_parent, TIERS),
];

const BURST: u64 = 80_000;

/// Returns a rate that has been in per-CPU mode, and the number of units that it has.
fn rate() -> (Rate, u64) {
    let rate = Rate::new(SLOW, BURST);
    // Below the cap of per-CPU mode, so that its bucket loses nothing.
    rate.try_acquire(BURST / 8 + 2_000).expect("units are available");
    to_percpu_mode(&rate);
    let available = rate.available();
    (rate, available)
}

/// Asserts in a child that `least` to `most` units are available, and can be acquired.
fn assert_exact_in_child(rate: &Rate, least: u64, most: u64) {
    let available = rate.available();
    assert!(least <= available && available <= most, "{available}, not {least} to {most}");
    assert_eq!(rate.try_acquire(available + 1).unwrap_err().available(), available);
    rate.try_acquire(available).expect("units are available");
    assert_eq!(rate.available(), 0);
}

// The first call after a recall borrows for its lane.
fn child_is_exact_when_forked_during_acquire() {
    let (rate, _) = rate();
    let left = AtomicU64::new(0);
    let acquire = || rate.try_acquire(1).expect("units are available");
    let child = || {
        let left = left.load(SeqCst);
        assert_exact_in_child(&rate, left - 1, left);
    };
    let prepare = || left.store(rate.available(), SeqCst);
    fork_at_steps(Steps::Sampled, prepare, acquire, child, |()| {
        assert_eq!(rate.available(), left.load(SeqCst) - 1);
    });
    assert_eq!(support::rate_recalls(&rate) > 0, has_lanes());
}

fn child_is_exact_when_forked_during_recall() {
    let (rate, available) = rate();
    let child = || assert_exact_in_child(&rate, available, available);
    let refused = || rate.try_acquire(BURST).unwrap_err().available();
    let check = |now: u64| assert_eq!(now, available);
    // `available` returns to per-CPU mode, because units are plentiful.
    fork_at_steps(
        Steps::Sampled,
        || assert_eq!(rate.available(), available),
        refused,
        child,
        check,
    );
}

fn child_is_exact_when_forked_during_change() {
    let (rate, available) = rate();
    let child = || {
        assert_exact_in_child(&rate, available, available);
        assert!([BURST, 2 * BURST].contains(&rate.burst()));
    };
    let change = || {
        rate.set_burst(2 * BURST).expect("a burst");
        rate.set_burst(BURST).expect("a burst");
    };
    fork_at_steps(
        Steps::Sampled,
        || (),
        change,
        child,
        |()| {
            assert_eq!(rate.available(), available);
        },
    );
}

fn child_ignores_waiters_of_parent() {
    let rate = &Rate::new(Pace::per(1, Duration::from_millis(200)), 10);
    rate.try_acquire(10).expect("units are available");
    std::thread::scope(|threads| {
        let waiter = threads.spawn(|| rate.acquire(3));
        assert!(scale::soon(|| rate.waiters() == 1));
        let child = fork::run(|| {
            assert_eq!(rate.waiters(), 0);
            assert_eq!(rate.acquire(1), Ok(()));
            assert!(scale::soon(|| rate.available() > 0));
            rate.set_burst(5).expect("a burst");
        });
        assert_eq!(child, Ok(()));
        assert_eq!(waiter.join().expect("no panic"), Ok(()));
    });
}

//! Shared budgets: releases of more units than are held cost no other process a unit.

use std::sync::atomic::Ordering::SeqCst;

use thiscpu::{Segment, SharedBudget};

use super::segment_participants::{Holder, LIMIT, budget, exhausted, until};
use crate::common::segment::{Processes, file_of, shared_words, small_segment};
use crate::common::{DEFAULT_ONLY, Scenario, TIERS, fork, pin, scale, scenario, together};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(segment_budget_over_release::excess_is_taken_back_and_counted, TIERS),
    scenario!(segment_budget_over_release::excess_that_others_acquired_is_owed, DEFAULT_ONLY),
    scenario!(segment_budget_over_release::excess_of_killed_process_is_counted, DEFAULT_ONLY),
    scenario!(segment_budget_over_release::impossible_releases_are_ignored, DEFAULT_ONLY),
    scenario!(segment_budget_over_release::first_excess_is_reported, DEFAULT_ONLY),
    scenario!(segment_budget_over_release::budget_recovers_under_load, DEFAULT_ONLY),
    scenario!(segment_budget_over_release::acquire_up_to_takes_what_is_available, TIERS),
];

/// Returns a budget as two participants see it.
fn two() -> [SharedBudget; 2] {
    let segment = small_segment();
    [&segment, &Segment::from_fd(file_of(&segment).into()).expect("a segment")].map(budget)
}

fn excess_is_taken_back_and_counted() {
    for units in [1, 4, LIMIT, 3 * LIMIT] {
        let [own, other] = two();
        for cpu in 0..2 {
            pin::pin(cpu);
            own.try_acquire(20).expect("units are available");
        }
        other.try_acquire(50).expect("units are available");
        assert_eq!(own.over_released(), 0);
        own.release(40);
        own.release(units);
        assert_eq!((other.acquired(), other.available()), (50, LIMIT - 50), "{units}");
        assert_eq!((own.over_released(), other.over_released()), (units, units));
        assert_eq!(other.try_acquire(LIMIT - 49), exhausted(LIMIT - 50));
        own.try_acquire(LIMIT - 50).expect("units are available");
        assert_eq!(own.try_acquire(1), exhausted(0));
        own.release(LIMIT - 50);
        other.release(50);
        assert_eq!((own.available(), own.over_released()), (LIMIT, units));
    }
}

// Nothing is granted until as many units have come back as others acquired of the excess.
fn excess_that_others_acquired_is_owed() {
    let [own, other] = two();
    other.try_acquire(50).expect("units are available");
    own.release(30);
    other.try_acquire(80).expect("the excess is not found yet");
    assert_eq!((other.acquired(), other.available()), (LIMIT + 30, 0));
    assert_eq!(other.over_released(), 30);
    other.release(30);
    assert_eq!(other.try_acquire(1), exhausted(0));
    other.release(1);
    other.try_acquire(1).expect("a unit is available");
    other.release(LIMIT);
    assert_eq!((own.available(), own.over_released()), (LIMIT, 30));
}

fn excess_of_killed_process_is_counted() {
    let segment = small_segment();
    let budget = budget(&segment);
    budget.try_acquire(50).expect("units are available");
    // While more units are held than the limit allows, the pool has all free ones.
    budget.set_limit(40);
    for round in 1..=scale::rounds(5) {
        let release = || {
            budget.try_acquire(0).expect("nothing is available");
            budget.release(3);
        };
        Holder::start(release, || ()).kill();
        // A refusal in shared mode reclaims from the dead, and does not look for other excess.
        until(|| {
            assert_eq!(budget.try_acquire(1), exhausted(0));
            budget.over_released() == 3 * round
        });
        assert_eq!((budget.acquired(), budget.available()), (50, 0));
    }
    budget.set_limit(60);
    assert_eq!(budget.available(), 10);
}

fn impossible_releases_are_ignored() {
    let [own, _] = two();
    own.try_acquire(10).expect("units are available");
    own.release(SharedBudget::LIMIT_MAX + 1);
    assert_eq!((own.acquired(), own.over_released()), (10, SharedBudget::LIMIT_MAX + 1));
    own.release(u64::MAX);
    assert_eq!((own.acquired(), own.over_released()), (10, u64::MAX));
    own.release(SharedBudget::LIMIT_MAX);
    assert_eq!((own.acquired(), own.over_released()), (10, u64::MAX));
    own.release(10);
    assert_eq!((own.available(), own.acquired()), (LIMIT, 0));
}

fn first_excess_is_reported() {
    let [own, other] = two();
    let (status, text) = fork::capture_stderr(|| {
        let child = own.try_acquire(1);
        child.expect("units are available");
        own.release(3);
        assert_eq!(own.available(), LIMIT);
        own.release(3);
        assert_eq!((own.available(), own.over_released()), (LIMIT, 5));
    });
    assert_eq!(status, 0, "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    let begin = "thiscpu: shared budget over-released: process ";
    assert!(
        text.starts_with(begin) && text.contains(" released 2 units more than it held (limit 100)")
    );
    assert_eq!(other.over_released(), 5);
}

// Two processes release the units that they hold, and one releases more. No call fails, and in the
// end no unit is missing.
fn budget_recovers_under_load() {
    let segment = small_segment();
    let budget = budget(&segment);
    let bugs = &shared_words()[0];
    let rounds = scale::rounds(2000);
    let processes = Processes::start(3, |process| {
        drop(together(2, |thread| {
            for round in 0..rounds {
                let n = 1 + (round + thread as u64) % 30;
                if budget.try_acquire(n).is_ok() {
                    budget.release(n);
                }
                if process == 0 && round % 50 == 7 {
                    budget.release(2);
                    bugs.fetch_add(2, SeqCst);
                }
            }
        }));
        // Credit of this process would hide its excess.
        budget.available();
    });
    processes.finish();
    until(|| budget.acquired() == 0);
    assert_eq!(budget.available(), LIMIT);
    assert_eq!(budget.over_released(), bugs.load(SeqCst));
}

fn acquire_up_to_takes_what_is_available() {
    let [own, other] = two();
    assert_eq!(own.try_acquire_up_to(30), 30);
    assert_eq!(other.try_acquire_up_to(u64::MAX), LIMIT - 30);
    assert_eq!((own.try_acquire_up_to(1), own.acquired()), (0, LIMIT));
    own.release(30);
    assert_eq!((own.try_acquire_up_to(0), own.try_acquire_up_to(31)), (0, 30));
    other.release(LIMIT - 30);
    own.release(30);
    let rounds = scale::rounds(2000);
    drop(together(3, |thread| {
        let budget = if thread == 0 { &other } else { &own };
        for round in 0..rounds {
            let n = budget.try_acquire_up_to(1 + round % LIMIT);
            assert!(n <= 1 + round % LIMIT);
            budget.release(n);
        }
    }));
    assert_eq!((own.available(), own.over_released()), (LIMIT, 0));
    own.close();
    assert_eq!(own.try_acquire_up_to(1), 0);
}

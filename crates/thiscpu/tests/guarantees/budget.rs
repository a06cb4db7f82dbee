//! `Budget`: it never grants more than its limit, and never refuses wrongly.

use std::future::Future;
use std::panic::catch_unwind;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};

use thiscpu::Budget;
use thiscpu::TryAcquireError::Exhausted;

use crate::common::{
    Random, Scenario, TIERS, TIERS_AND_SANDBOXES, at_sampled_steps, can_single_step, pin,
    resources, scale, scenario, together, together_while,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(budget::limit_is_never_exceeded, TIERS_AND_SANDBOXES),
    scenario!(budget::never_refuses_wrongly, TIERS_AND_SANDBOXES),
    scenario!(budget::reports_available_and_acquired, TIERS),
    scenario!(budget::acquire_up_to_takes_all_available, TIERS),
    scenario!(budget::limit_may_change_under_load, TIERS),
    scenario!(budget::limit_may_drop_below_held, TIERS),
    scenario!(budget::raised_limit_serves_waiters, TIERS),
    scenario!(budget::release_is_exact_when_limit_changes, TIERS).needs(can_single_step),
    scenario!(budget::leases_split_merge_and_forget, TIERS),
    scenario!(budget::reserves_hold_their_units, TIERS),
    scenario!(budget::drop_frees_lanes, TIERS),
];

pub(super) const LARGE: u64 = 100_000;

/// Polls a future with a waker that does nothing.
pub(super) fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Puts a budget into per-CPU mode, with units lent to the lanes of all CPUs.
pub(super) fn to_percpu_mode(budget: &Budget) {
    for cpu in 0..pin::cpus().len() {
        pin::pin(cpu);
        for _ in 0..700 {
            budget.try_acquire(1).expect("units are available");
            budget.release(1);
        }
    }
    pin::set_affinity(0, pin::cpus());
}

/// Acquires and releases at random on some threads, and returns the number of refusals.
///
/// Units count as held from after their acquire until before their release, so the count is never
/// too high.
fn churn(budget: &Budget, threads: usize, most_each: u64, limit: u64) -> u64 {
    let (held, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let work = |thread: usize| {
        let mut random = Random::new(thread as u64);
        let mut own = 0;
        for _ in 0..scale::rounds(30_000) {
            let n = 1 + random.below(most_each);
            if own + n <= most_each && budget.try_acquire(n).is_ok() {
                own += n;
                let now = held.fetch_add(n, SeqCst) + n;
                assert!(now <= limit, "{now} are held, of {limit}");
            } else if own + n <= most_each {
                refused.fetch_add(1, SeqCst);
            } else {
                held.fetch_sub(own, SeqCst);
                budget.release(own);
                own = 0;
            }
        }
        held.fetch_sub(own, SeqCst);
        budget.release(own);
    };
    together(threads, work);
    assert_eq!(budget.available(), limit);
    assert_eq!(budget.acquired(), 0);
    refused.into_inner()
}

fn limit_is_never_exceeded() {
    // All threads together hold 800 units at most; each holds 200.
    for limit in [100_000, 2_000, 300, 150] {
        let budget = Budget::new(limit);
        let refused = churn(&budget, 4, 200, limit);
        assert!(limit > 200 || refused > 0, "no request was refused near the limit");
    }
}

// The limit is as much as all threads can hold together, so every refusal is wrong.
fn never_refuses_wrongly() {
    for most_each in [3, 64, 1000, 20_000] {
        const THREADS: u64 = 4;
        let budget = Budget::new(THREADS * most_each);
        assert_eq!(churn(&budget, 4, most_each, THREADS * most_each), 0, "at {most_each} each");
    }
}

fn reports_available_and_acquired() {
    const LIMIT: u64 = 10_000;
    let budget = Budget::new(LIMIT);
    for too_much in [u64::MAX, Budget::LIMIT_MAX + 1, Budget::LIMIT_MAX] {
        to_percpu_mode(&budget);
        assert_eq!(budget.try_acquire(too_much), Err(Exhausted { available: LIMIT }));
    }
    to_percpu_mode(&budget);
    assert_eq!((budget.available(), budget.acquired(), budget.limit()), (LIMIT, 0, LIMIT));
    budget.try_acquire(9_900).expect("units are available");
    assert_eq!(budget.try_acquire(101), Err(Exhausted { available: 100 }));
    let message = budget.try_acquire(101).unwrap_err().to_string();
    assert!(message.contains("only 100 units are available"), "{message}");
    assert_eq!(budget.try_acquire(u64::MAX), Err(Exhausted { available: 100 }));
    assert_eq!((budget.available(), budget.acquired()), (100, 9_900));
    budget.release(9_900);
    assert_eq!(budget.available(), LIMIT);
    let panic = catch_unwind(|| Budget::new(Budget::LIMIT_MAX + 1)).expect_err("too large");
    assert!(panic.downcast::<&str>().expect("a message").contains("2^56"));
}

fn acquire_up_to_takes_all_available() {
    let budget = Budget::new(5_000);
    to_percpu_mode(&budget);
    assert_eq!(budget.try_acquire_up_to(4_000), 4_000);
    assert_eq!(budget.try_acquire_up_to(4_000), 1_000);
    assert_eq!(budget.try_acquire_up_to(4_000), 0);
    budget.release(7);
    assert_eq!(budget.try_acquire_up_to(u64::MAX), 7);
    budget.release(5_000);
    assert_eq!(budget.available(), 5_000);
    // The request exceeds what a budget can count, and lanes hold units.
    to_percpu_mode(&budget);
    assert_eq!(budget.try_acquire_up_to(u64::MAX), 5_000);
    budget.release(5_000);
}

fn limit_may_change_under_load() {
    const MOST: u64 = 4_000;
    let budget = Budget::new(MOST);
    let over = AtomicBool::new(false);
    let work = |thread: usize| {
        let mut random = Random::new(thread as u64);
        while !over.load(SeqCst) {
            let n = 1 + random.below(300);
            if budget.try_acquire(n).is_ok() {
                budget.release(n);
            }
        }
    };
    together_while(3, work, || {
        for round in 0..scale::rounds(300) {
            let limit = [MOST, 100, 2_000][round as usize % 3];
            budget.set_limit(limit);
            assert_eq!(budget.limit(), limit);
            assert!(budget.available() <= limit);
        }
        over.store(true, SeqCst);
    });
    budget.set_limit(MOST);
    assert_eq!((budget.available(), budget.acquired()), (MOST, 0));
}

// Held units stay held, and no unit is granted until enough were released.
fn limit_may_drop_below_held() {
    let budget = Budget::new(1_000);
    to_percpu_mode(&budget);
    budget.try_acquire(800).expect("units are available");
    budget.set_limit(500);
    assert_eq!((budget.available(), budget.acquired()), (0, 800));
    budget.release(300);
    assert_eq!(budget.try_acquire(1), Err(Exhausted { available: 0 }));
    budget.release(1);
    assert_eq!(budget.try_acquire(2), Err(Exhausted { available: 1 }));
    budget.try_acquire(1).expect("a unit is available");
    budget.set_limit(2_000);
    assert_eq!(budget.available(), 1_500);
}

fn raised_limit_serves_waiters() {
    let budget = Budget::new(10);
    let mut future = pin!(budget.acquire_async(15));
    assert!(poll(future.as_mut()).is_pending());
    budget.set_limit(14);
    assert!(poll(future.as_mut()).is_pending());
    budget.set_limit(20);
    assert!(poll(future.as_mut()).is_ready());
    assert_eq!((budget.available(), budget.acquired()), (20, 0));
}

// Units held above the limit are released while the limit changes: that is no over-release.
fn release_is_exact_when_limit_changes() {
    let budget = &Budget::new(1_000);
    for (old, new) in [(100, 1_000), (500, 200)] {
        let prepare = || {
            budget.try_acquire(1_000).expect("units are available");
            budget.set_limit(old);
        };
        let check = |steps, reached, ()| {
            assert_eq!(budget.acquired(), if reached { 50 } else { 1_000 }, "after {steps}");
            budget.release(budget.acquired());
            assert_eq!(budget.available(), new, "after {steps}");
            budget.set_limit(1_000);
        };
        at_sampled_steps(prepare, || budget.set_limit(new), |_| budget.release(950), check);
    }
}

fn leases_split_merge_and_forget() {
    let (budget, other) = (Budget::new(2_000), Budget::new(1));
    to_percpu_mode(&budget);
    let mut lease = budget.lease(1_000).expect("units are available");
    assert!(lease.split(1_001).is_none());
    let part = lease.split(400).expect("it has enough units");
    assert_eq!((lease.units(), part.units(), budget.acquired()), (600, 400, 1_000));
    drop(part);
    assert_eq!(budget.acquired(), 600);
    lease.merge(budget.lease(50).expect("units are available"));
    assert_eq!((lease.units(), budget.acquired()), (650, 650));
    assert_eq!(budget.lease(1_351).unwrap_err().available(), 1_350);
    let foreign = other.lease(1).expect("a unit is available");
    let merged = catch_unwind(std::panic::AssertUnwindSafe(|| lease.merge(foreign)));
    assert!(merged.is_err());
    assert_eq!((lease.forget(), other.acquired()), (650, 0));
    assert_eq!(budget.acquired(), 650);
    budget.release(650);
}

fn reserves_hold_their_units() {
    let budget = Budget::new(500);
    let reserve = budget.try_reserve(100).expect("units are available");
    budget.try_acquire(400).expect("units are available");
    assert_eq!(budget.try_acquire(1), Err(Exhausted { available: 0 }));
    let lease = reserve.lease(30).expect("units are reserved");
    assert_eq!((reserve.available(), reserve.units()), (70, 100));
    assert_eq!(reserve.lease(71).unwrap_err().available(), 70);
    drop(lease);
    // Units of a forgotten lease stay acquired.
    let forgotten = reserve.lease(25).expect("units are reserved").forget();
    drop(reserve);
    assert_eq!(budget.available(), 75);
    budget.release(forgotten);
    // A lease leads to its reserve, as a budget of its own: raising that limit creates no units.
    let reserve = budget.try_reserve(100).expect("units are available");
    let lease = reserve.lease(30).expect("units are reserved");
    lease.budget().set_limit(1_000);
    drop(lease);
    drop(reserve);
    assert_eq!((budget.available(), budget.acquired()), (100, 400));
}

fn drop_frees_lanes() {
    let mut before = None;
    for round in 0..scale::rounds(20_000) {
        let budget = Budget::new(LARGE);
        for _ in 0..40 {
            budget.try_acquire(1).expect("units are available");
        }
        assert_eq!(budget.acquired(), 40, "round {round}");
        before.get_or_insert_with(|| resources::status_bytes("VmSize"));
    }
    assert_eq!(Some(resources::status_bytes("VmSize")), before);
}

//! `OwnedLease`: it can be stored and sent, keeps its budget alive, and loses no unit.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use thiscpu::TryAcquireError::{Closed, Exhausted};
use thiscpu::{AcquireOwned, Budget, OwnedLease};

use super::budget::{LARGE, poll, to_percpu_mode};
use super::budget_waiters::block_on;
use crate::common::{Scenario, TIERS, resources, scale, scenario, together};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(budget::owned_leases_can_be_sent, TIERS),
    scenario!(budget::owned_leases_split_merge_and_forget, TIERS),
    scenario!(budget::owned_waits_end, TIERS),
    scenario!(budget::owned_tasks_lose_no_unit, TIERS),
    scenario!(budget::last_owned_lease_drops_the_budget, TIERS),
];

const fn assert_sendable<T: Send + Sync + 'static>() {}
const _: () = assert_sendable::<OwnedLease>();
const _: () = assert_sendable::<AcquireOwned>();

fn owned_leases_can_be_sent() {
    let budget = Arc::new(Budget::new(LARGE));
    to_percpu_mode(&budget);
    let (send, receive) = std::sync::mpsc::channel();
    let lessee = std::thread::spawn({
        let budget = Arc::clone(&budget);
        move || {
            for n in 1..=100 {
                send.send(budget.try_acquire_owned(n).expect("units are available")).expect("open");
            }
        }
    });
    lessee.join().expect("no panic");
    assert_eq!(budget.acquired(), 5_050);
    let held: u64 = receive.into_iter().map(|lease| lease.units()).sum();
    assert_eq!((held, budget.acquired(), Arc::strong_count(&budget)), (5_050, 0, 1));
}

fn owned_leases_split_merge_and_forget() {
    let (budget, other) = (Arc::new(Budget::new(2_000)), Arc::new(Budget::new(1)));
    let mut lease = budget.try_acquire_owned(1_000).expect("units are available");
    assert!(lease.split(1_001).is_none());
    let part = lease.split(400).expect("it has enough units");
    assert_eq!((lease.units(), part.units(), budget.acquired()), (600, 400, 1_000));
    drop(part);
    assert_eq!(budget.acquired(), 600);
    lease.merge(budget.try_acquire_owned(50).expect("units are available"));
    assert_eq!((lease.units(), budget.acquired()), (650, 650));
    assert!(Arc::ptr_eq(lease.budget(), &budget));
    let refused = budget.try_acquire_owned(1_351).map(drop);
    assert_eq!((refused, Arc::strong_count(&budget)), (Err(Exhausted { available: 1_350 }), 2));
    let foreign = other.try_acquire_owned(1).expect("a unit is available");
    let merged = catch_unwind(AssertUnwindSafe(|| lease.merge(foreign)));
    assert!(merged.is_err());
    assert_eq!((lease.forget(), other.acquired()), (650, 0));
    // A forgotten lease keeps its units, not its reference.
    assert_eq!((budget.acquired(), Arc::strong_count(&budget)), (650, 1));
    budget.release(650);
    let mut all = budget.try_acquire_owned(2_000).expect("units are available");
    let rest = all.split(2_000).expect("it has enough units");
    assert_eq!((all.units(), rest.units()), (0, 2_000));
    drop((all, rest));
    assert_eq!((budget.acquired(), budget.over_released()), (0, 0));
}

fn owned_waits_end() {
    let budget = Arc::new(Budget::new(100));
    let held = budget.acquire_owned(60).wait().expect("open");
    let refused = Err(Exhausted { available: 40 });
    assert_eq!(budget.acquire_owned(41).wait_timeout(Duration::ZERO).map(drop), refused);
    assert_eq!(budget.acquire_owned(41).wait_deadline(Instant::now()).map(drop), refused);
    let mut granted = Box::pin(budget.acquire_owned(50));
    let mut closed = Box::pin(budget.acquire_owned(51));
    assert!(poll(granted.as_mut()).is_pending() && poll(closed.as_mut()).is_pending());
    drop(held);
    budget.close();
    assert!(matches!(poll(closed.as_mut()), Poll::Ready(Err(_))));
    let Poll::Ready(Ok(lease)) = poll(granted.as_mut()) else { panic!("its units were granted") };
    assert_eq!((lease.units(), budget.acquired()), (50, 50));
    drop((granted, closed));
    assert_eq!(budget.acquired(), 50);
    assert_eq!(budget.try_acquire_owned(1).map(drop), Err(Closed));
    assert!(budget.acquire_owned(1).wait().is_err());
    drop(lease);
    assert_eq!((budget.acquired(), Arc::strong_count(&budget)), (0, 1));
}

fn owned_tasks_lose_no_unit() {
    let budget = Arc::new(Budget::new(100));
    let work = |thread: usize| {
        for round in 0..scale::rounds(2_000) {
            let mut future = Box::pin(budget.acquire_owned(60));
            if (thread as u64 + round).is_multiple_of(3) {
                // Canceled, perhaps with its units.
                let _ = poll(future.as_mut());
            } else {
                assert_eq!(block_on(future).expect("open").units(), 60);
            }
        }
    };
    together(4, work);
    assert_eq!((budget.available(), budget.waiters()), (100, 0));
    assert_eq!(Arc::strong_count(&budget), 1);
}

// The lease outlives all other references; its drop releases into a budget that still exists.
fn last_owned_lease_drops_the_budget() {
    let mut before = None;
    for round in 0..scale::rounds(5_000) {
        let budget = Arc::new(Budget::new(LARGE));
        for _ in 0..40 {
            budget.try_acquire(1).expect("units are available");
        }
        let weak = Arc::downgrade(&budget);
        let lease = budget.try_acquire_owned(5).expect("units are available");
        drop(budget);
        assert_eq!(lease.budget().acquired(), 45, "round {round}");
        drop(lease);
        assert!(weak.upgrade().is_none());
        before.get_or_insert_with(|| resources::status_bytes("VmSize"));
    }
    assert_eq!(Some(resources::status_bytes("VmSize")), before);
}

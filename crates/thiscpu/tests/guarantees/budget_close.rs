//! `Budget::close`: it ends every wait, refuses every later acquire, and loses no unit.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::task::Poll;
use std::time::{Duration, Instant};

use thiscpu::TryAcquireError::{Closed, Exhausted};
use thiscpu::{AcquireError, Budget};

use super::budget::{LARGE, poll, to_percpu_mode};
use super::budget_waiters::{block_on, with_panicking_waker};
use crate::common::{
    Random, Scenario, Steps, TIERS, TIERS_AND_SANDBOXES, can_single_step, fork, fork_at_steps,
    scale, scenario, together, together_while,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(budget::closed_budget_refuses_every_acquire, TIERS_AND_SANDBOXES),
    scenario!(budget::leases_outlive_close, TIERS),
    scenario!(budget::close_ends_every_wait, TIERS),
    scenario!(budget::close_keeps_granted_units, TIERS),
    scenario!(budget::close_refuses_under_load, TIERS_AND_SANDBOXES),
    scenario!(budget::waiters_are_counted, TIERS),
    scenario!(budget::future_may_be_dropped_at_any_poll, TIERS),
    scenario!(budget::panicking_waker_does_not_stop_close, TIERS),
    scenario!(budget::child_is_exact_when_forked_during_close, TIERS).needs(can_single_step),
    scenario!(budget::waits_end_at_their_deadline, TIERS),
];

const LONG: Duration = Duration::from_secs(3_600);

/// Returns budgets of `limit` units in each mode.
fn in_each_mode(limit: u64) -> [Budget; 2] {
    let budgets = [Budget::new(limit), Budget::new(limit)];
    to_percpu_mode(&budgets[0]);
    budgets
}

fn closed_budget_refuses_every_acquire() {
    for budget in in_each_mode(LARGE) {
        budget.try_acquire(100).expect("units are available");
        assert!(!budget.is_closed());
        for _ in 0..2 {
            budget.close();
            assert!(budget.is_closed());
            for n in [0, 1, LARGE, u64::MAX] {
                assert_eq!(budget.try_acquire(n), Err(Closed), "{n}");
                assert_eq!(budget.try_acquire_up_to(n), 0, "{n}");
                assert_eq!(budget.lease(n).map(drop), Err(Closed), "{n}");
                assert_eq!(budget.try_reserve(n).map(drop), Err(Closed), "{n}");
                assert!(budget.acquire(n).is_err(), "{n}");
                assert_eq!(budget.acquire_timeout(n, LONG), Err(Closed), "{n}");
                assert_eq!(budget.acquire_deadline(n, Instant::now() + LONG), Err(Closed), "{n}");
                assert!(matches!(poll(pin!(budget.acquire_async(n))), Poll::Ready(Err(_))), "{n}");
                assert_eq!(budget.acquire_async(n).wait_timeout(LONG).map(drop), Err(Closed));
            }
            assert_eq!((budget.available(), budget.acquired()), (LARGE - 100, 100));
        }
        let message = budget.try_acquire(1).expect_err("closed").to_string();
        assert!(message.contains("budget closed"), "{message}");
        // Many releases that find plenty of units: the budget stays closed.
        for _ in 0..2_000 {
            budget.release(0);
        }
        budget.set_limit(2 * LARGE);
        assert_eq!((budget.available(), budget.acquired()), (2 * LARGE - 100, 100));
        assert_eq!(budget.try_acquire(1), Err(Closed));
        budget.release(100);
        assert_eq!((budget.acquired(), budget.over_released()), (0, 0));
        budget.release(1);
        assert_eq!((budget.acquired(), budget.over_released()), (0, 1));
        assert!(budget.is_closed());
    }
}

fn leases_outlive_close() {
    for budget in in_each_mode(LARGE) {
        let mut lease = budget.lease(100).expect("units are available");
        let reserve = budget.try_reserve(50).expect("units are available");
        budget.close();
        let part = lease.split(40).expect("it has enough units");
        assert_eq!((lease.units(), part.units(), budget.acquired()), (60, 40, 150));
        lease.merge(part);
        drop(lease.split(10));
        assert_eq!(budget.acquired(), 140);
        // The owner of a reserve has its units already.
        drop(reserve.lease(50).expect("units are reserved"));
        assert_eq!((reserve.available(), lease.forget()), (50, 90));
        drop(reserve);
        assert_eq!(budget.acquired(), 90);
        budget.release(90);
        assert_eq!(budget.acquired(), 0);
    }
}

/// Waits until `count` threads and tasks wait; gives up after a while.
fn until_waiting(budget: &Budget, count: usize) {
    for _ in 0..100_000 {
        if budget.waiters() == count {
            return;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    // A panic here would leave the waiters waiting.
    budget.close();
    panic!("not {count} threads and tasks wait");
}

// Threads and tasks wait, with and without deadlines.
fn close_ends_every_wait() {
    for round in 0..scale::rounds(20) {
        let limit = [100, LARGE][round as usize % 2];
        let budget = &Budget::new(limit);
        let held = budget.lease(limit).expect("units are available");
        let wait = |kind: usize| match kind % 4 {
            0 => budget.acquire(1 + kind as u64).is_err(),
            1 => budget.acquire_timeout(2 * limit, LONG) == Err(Closed),
            2 => block_on(budget.acquire_async(limit)).is_err(),
            _ => budget.acquire_async(3).wait().is_err(),
        };
        let ended = std::thread::scope(|threads| {
            let threads: Vec<_> = (0..8).map(|kind| threads.spawn(move || wait(kind))).collect();
            until_waiting(budget, 8);
            budget.close();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
        });
        assert_eq!(ended, [true; 8], "each wait ends with the error");
        assert_eq!(budget.waiters(), 0);
        drop(held);
        assert_eq!((budget.available(), budget.acquired()), (limit, 0));
    }
}

fn close_keeps_granted_units() {
    let budget = Budget::new(100);
    let held = budget.lease(100).expect("units are available");
    let mut futures = [30, 40, 50].map(|n| Box::pin(budget.acquire_async(n)));
    futures.iter_mut().for_each(|future| assert!(poll(future.as_mut()).is_pending()));
    drop(held);
    // Two have their units, although no poll has seen that yet.
    assert_eq!(budget.waiters(), 1);
    budget.close();
    let [first, second, third] = futures;
    let poll = |mut future: std::pin::Pin<Box<thiscpu::Acquire<'_>>>| match poll(future.as_mut()) {
        Poll::Ready(Ok(lease)) => lease.forget(),
        Poll::Ready(Err(AcquireError { .. })) => 0,
        Poll::Pending => panic!("it still waits"),
    };
    assert_eq!((poll(first), poll(third)), (30, 0));
    assert_eq!(budget.acquired(), 70);
    drop(second);
    assert_eq!(budget.acquired(), 30);
}

// No acquire that begins after `close` succeeds, and all units come back.
fn close_refuses_under_load() {
    for round in 0..scale::rounds(60) {
        let limit = [100, LARGE][round as usize % 2];
        let (budget, closed) = (Budget::new(limit), AtomicBool::new(false));
        if limit == LARGE {
            to_percpu_mode(&budget);
        }
        let held = AtomicU64::new(0);
        let work = |thread: usize| {
            let mut random = Random::new(round * 7 + thread as u64);
            loop {
                let was_closed = closed.load(SeqCst);
                let n = 1 + random.below(limit / 3);
                let got = match random.below(4) {
                    0 => budget.acquire(n).is_ok(),
                    1 => block_on(budget.acquire_async(n)).map(|lease| lease.forget()).is_ok(),
                    _ => budget.try_acquire(n).is_ok(),
                };
                assert!(!(got && was_closed), "acquired after the close");
                if got {
                    let now = held.fetch_add(n, SeqCst) + n;
                    assert!(now <= limit, "{now} held, of {limit}");
                    held.fetch_sub(n, SeqCst);
                    budget.release(n);
                } else if was_closed {
                    return;
                }
            }
        };
        together_while(4, work, || {
            std::thread::sleep(Duration::from_micros(200));
            budget.close();
            closed.store(true, SeqCst);
        });
        assert_eq!((budget.available(), budget.acquired()), (limit, 0));
        assert_eq!((budget.waiters(), budget.over_released()), (0, 0));
    }
}

fn waiters_are_counted() {
    let budget = Budget::new(10);
    let held = budget.lease(10).expect("units are available");
    assert_eq!(budget.waiters(), 0);
    let mut futures = [1, 2, 3, 4].map(|n| Some(Box::pin(budget.acquire_async(n))));
    for (count, future) in futures.iter_mut().flatten().enumerate() {
        assert_eq!(budget.waiters(), count, "a future does not wait before its first poll");
        assert!(poll(future.as_mut()).is_pending());
        assert!(poll(future.as_mut()).is_pending());
    }
    assert_eq!(budget.waiters(), 4);
    futures[1] = None;
    futures[3] = None;
    assert_eq!(budget.waiters(), 2);
    assert_eq!(budget.acquire_timeout(1, Duration::ZERO), Err(Exhausted { available: 0 }));
    assert_eq!(budget.waiters(), 2);
    fork::run(|| {
        assert_eq!(budget.waiters(), 0);
        assert!(poll(pin!(budget.acquire_async(11))).is_pending());
    })
    .expect("a child without waiters");
    drop(held);
    assert_eq!(budget.waiters(), 0);
    futures = [const { None }; 4];
    drop(futures);
    assert_eq!((budget.available(), budget.waiters()), (10, 0));
}

// A future is dropped before its first poll, while it waits, granted, after a close, and resolved.
fn future_may_be_dropped_at_any_poll() {
    for owned in [false, true] {
        for polls in 0..4 {
            for (releases, closes) in [(false, false), (true, false), (false, true), (true, true)] {
                let budget = Arc::new(Budget::new(100));
                let held = budget.lease(60).expect("units are available");
                let mut held = Some(held);
                let mut borrowing = Box::pin(budget.acquire_async(70));
                let mut owning = Box::pin(budget.acquire_owned(70));
                let mut leases = Vec::new();
                for number in 0..polls {
                    match owned {
                        false => {
                            if let Poll::Ready(Ok(lease)) = poll(borrowing.as_mut()) {
                                leases.push(lease.units());
                            }
                        }
                        true => {
                            if let Poll::Ready(Ok(lease)) = poll(owning.as_mut()) {
                                leases.push(lease.units());
                            }
                        }
                    }
                    if number == 1 && releases {
                        held = None;
                    }
                    if number == 1 && closes {
                        budget.close();
                    }
                }
                drop((borrowing, owning));
                let case = format!("owned {owned}, {polls} polls, {releases}, {closes}");
                // Dropped leases have released their units too.
                let still = held.as_ref().map_or(0, |lease| lease.units());
                assert_eq!((budget.acquired(), budget.waiters()), (still, 0), "{case}");
                assert_eq!(leases.len(), usize::from(polls == 3 && releases), "{case}");
                drop(held);
                assert_eq!((budget.available(), budget.over_released()), (100, 0), "{case}");
                assert_eq!(Arc::strong_count(&budget), 1, "{case}");
            }
        }
    }
}

fn panicking_waker_does_not_stop_close() {
    let budget = Budget::new(100);
    budget.try_acquire(100).expect("units are available");
    assert_eq!(with_panicking_waker(&budget, || budget.close()), [false, false]);
    assert!(budget.is_closed());
    assert_eq!((budget.acquired(), budget.waiters()), (100, 0));
}

// A child finds the budget open or closed, and can use or close it.
fn child_is_exact_when_forked_during_close() {
    let open = std::cell::RefCell::new(None::<&Budget>);
    let child_budget = AtomicU64::new(0);
    let prepare = || {
        // Leaked: closed budgets cannot be opened again.
        let budget: &Budget = Box::leak(Box::new(Budget::new(LARGE)));
        to_percpu_mode(budget);
        budget.try_acquire(LARGE - 5).expect("units are available");
        open.replace(Some(budget));
        child_budget.store(std::ptr::from_ref(budget) as u64, SeqCst);
    };
    let child = || {
        // SAFETY: the budget is leaked.
        let budget = unsafe { &*(child_budget.load(SeqCst) as *const Budget) };
        assert_eq!(budget.acquired(), LARGE - 5);
        match budget.is_closed() {
            true => assert_eq!(budget.try_acquire(1), Err(Closed)),
            false => {
                budget.try_acquire(5).expect("units are available");
                assert_eq!(budget.try_acquire(1), Err(Exhausted { available: 0 }));
                budget.release(5);
            }
        }
        budget.close();
        assert_eq!((budget.try_acquire(1), budget.waiters()), (Err(Closed), 0));
        budget.release(LARGE - 5);
        assert_eq!((budget.available(), budget.acquired()), (LARGE, 0));
    };
    let close = || {
        if let Some(budget) = *open.borrow() {
            budget.close();
        }
    };
    let check = |()| {
        let budget = open.take().expect("a budget");
        assert_eq!((budget.is_closed(), budget.acquired()), (true, LARGE - 5));
    };
    fork_at_steps(Steps::Sampled, prepare, close, child, check);
}

fn waits_end_at_their_deadline() {
    let budget = Budget::new(100);
    let soon = || Instant::now() + Duration::from_millis(2);
    let held = budget.lease(60).expect("units are available");
    let refused = Err(Exhausted { available: 40 });
    let deadline = soon();
    assert_eq!(budget.acquire_deadline(41, deadline), refused);
    assert!(Instant::now() >= deadline);
    // A deadline in the past.
    assert_eq!(budget.acquire_deadline(41, deadline), refused);
    assert_eq!(budget.acquire_deadline(40, deadline), Ok(()));
    budget.release(40);
    assert_eq!(budget.acquire_async(41).wait_deadline(soon()).map(drop), refused);
    assert_eq!(budget.acquire_async(41).wait_timeout(Duration::ZERO).map(drop), refused);
    let lease = budget.acquire_async(40).wait_deadline(deadline).expect("units are available");
    assert_eq!(budget.acquired(), 100);
    drop((lease, held));
    let lease = budget.acquire_async(100).wait().expect("open");
    assert_eq!((lease.units(), budget.waiters()), (100, 0));
    // A deadline so far away that it is none.
    together(2, |thread| match thread {
        0 => {
            until_waiting(&budget, 1);
            budget.close();
        }
        _ => assert_eq!(budget.acquire_timeout(1, Duration::MAX), Err(Closed)),
    });
}

//! Shared budgets: exact limits and waiting, over several processes.

use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use thiscpu::{Segment, SegmentErrorKind, SharedAcquireError, SharedBudget};
use thiscpu_test_support::seccomp::install;

use super::segment_participants::{Holder, LIMIT, budget, exhausted, until};
use crate::common::seccomp::can_filter;
use crate::common::segment::{Processes, file_of, shared_words, small, small_segment};
use crate::common::{
    DEFAULT_ONLY, Random, Scenario, TIERS, fork, pin, scale, scenario, signal, together,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(segment_budget::names_lead_to_their_own_budgets, DEFAULT_ONLY),
    scenario!(segment_budget::limit_of_an_existing_budget_is_kept, DEFAULT_ONLY),
    scenario!(segment_budget::leases_release_what_they_hold, DEFAULT_ONLY),
    scenario!(segment_budget::limit_holds_under_load, TIERS),
    scenario!(segment_budget::handler_may_release, DEFAULT_ONLY),
    scenario!(segment_budget::waiters_of_all_processes_are_served_in_order, TIERS),
    scenario!(segment_budget::waiters_get_units_of_killed_holders, TIERS),
    scenario!(segment_budget::waiters_find_grants_whose_wake_is_lost, DEFAULT_ONLY)
        .needs(can_filter),
    scenario!(segment_budget::killed_waiters_block_nobody, DEFAULT_ONLY),
    scenario!(segment_budget::waits_end_at_their_deadline, DEFAULT_ONLY),
    scenario!(segment_budget::waiters_without_a_place_get_units, DEFAULT_ONLY),
    scenario!(segment_budget::close_ends_waits_of_all_processes, DEFAULT_ONLY),
    scenario!(segment_budget::raised_limit_serves_waiters_of_all_processes, DEFAULT_ONLY),
    scenario!(segment_budget::lowered_limit_takes_nothing, DEFAULT_ONLY),
];

fn names_lead_to_their_own_budgets() {
    let segment = small_segment();
    let names: Vec<_> = (0..20).map(|number| format!("name {number}")).collect();
    let get = |number: usize| segment.budget(&names[number], LIMIT + number as u64).expect("room");
    (0..20).for_each(|number| get(number).try_acquire(number as u64).expect("available"));
    for number in 0..20 {
        let budget = get(number);
        assert_eq!((budget.limit(), budget.acquired()), (LIMIT + number as u64, number as u64));
    }
    segment.counter("counter").expect("room").inc();
    let error = segment.budget("counter", LIMIT).expect_err("a counter");
    assert_eq!(error.kind(), &SegmentErrorKind::OtherKind);
    let error = segment.counter(&names[0]).expect_err("a budget");
    assert_eq!(error.kind(), &SegmentErrorKind::OtherKind);
    let error = segment.budget("large", SharedBudget::LIMIT_MAX + 1).expect_err("a large limit");
    let message = error.to_string();
    assert!(message.starts_with("cannot make a budget in a segment without a name: "), "{message}");
    assert!(message.contains("limit is out of range; use 0 to"), "{message}");
    let largest = segment.budget("large", SharedBudget::LIMIT_MAX).expect("room");
    largest.try_acquire(SharedBudget::LIMIT_MAX).expect("units are available");
    assert_eq!(largest.try_acquire(u64::MAX), exhausted(0));
    largest.release(SharedBudget::LIMIT_MAX);
    assert_eq!(largest.available(), SharedBudget::LIMIT_MAX);
    let nothing = segment.budget("nothing", 0).expect("room");
    assert_eq!(nothing.try_acquire(1), exhausted(0));
    assert_eq!(nothing.try_acquire(0), Ok(()));
}

fn limit_of_an_existing_budget_is_kept() {
    let segment = small_segment();
    let first = segment.budget("budget", 10).expect("room");
    first.try_acquire(4).expect("units are available");
    let second = segment.budget("budget", 99).expect("the budget");
    assert_eq!((second.limit(), second.available()), (10, 6));
}

fn leases_release_what_they_hold() {
    let segment = small_segment();
    let (budget, another) = (budget(&segment), segment.budget("another", LIMIT).expect("room"));
    let mut lease = budget.lease(10).expect("units are available");
    let part = lease.split(4).expect("units");
    assert!(lease.split(7).is_none());
    assert_eq!((lease.units(), part.units(), budget.acquired()), (6, 4, 10));
    drop(part);
    assert_eq!(budget.acquired(), 6);
    lease.merge(budget.lease(1).expect("units are available"));
    assert_eq!((lease.units(), budget.acquired()), (7, 7));
    let stranger = another.lease(5).expect("units are available");
    let merged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| lease.merge(stranger)));
    assert!(merged.is_err(), "leases of two budgets");
    assert_eq!((another.acquired(), budget.acquired()), (0, 7));
    assert_eq!(lease.forget(), 7);
    budget.release(7);
    let mut owned = budget.try_acquire_owned(10).expect("units are available");
    owned.merge(budget.try_acquire_owned(3).expect("units are available"));
    let part = owned.split(5).expect("units");
    std::thread::spawn(move || drop(part)).join().expect("no panic");
    assert_eq!((owned.units(), budget.acquired()), (8, 8));
    assert_eq!(owned.forget(), 8);
    budget.release(8);
    assert_eq!(budget.available(), LIMIT);
    assert!(budget.lease(LIMIT + 1).is_err() && budget.try_acquire_owned(LIMIT + 1).is_err());
}

// A word that all processes share counts the units that are held.
fn limit_holds_under_load() {
    for limit in [7, LIMIT, 5_000] {
        let segment = small_segment();
        let held = &shared_words()[0];
        let budget = segment.budget("budget", limit).expect("room");
        let rounds = scale::rounds(3000);
        let work = |process: usize| {
            let own = match process % 2 {
                0 => segment.clone(),
                _ => Segment::from_fd(file_of(&segment).into()).expect("a segment"),
            };
            let own = own.budget("budget", limit).expect("the budget");
            together(2, |thread| {
                pin::pin(process + thread);
                let mut random = Random::new((2 * process + thread) as u64);
                for _ in 0..rounds {
                    let n = 1 + random.below(limit.min(20));
                    match random.below(16) {
                        0 => own.acquire(n).expect("open"),
                        1 => match own.acquire_timeout(n, Duration::from_micros(50)) {
                            Ok(()) => {}
                            Err(_) => continue,
                        },
                        _ if own.try_acquire(n).is_err() => continue,
                        _ => {}
                    }
                    let now = held.fetch_add(n, SeqCst) + n;
                    assert!(now <= limit, "{now} of {limit} units are held");
                    if random.below(8) == 0 {
                        std::thread::yield_now();
                    }
                    held.fetch_sub(n, SeqCst);
                    own.release(n);
                }
            });
        };
        let processes = Processes::start(3, work);
        for _ in 0..scale::rounds(50) {
            let acquired = budget.acquired();
            assert!(acquired <= limit, "{acquired} of {limit}");
            std::thread::yield_now();
        }
        processes.finish();
        until(|| budget.acquired() == 0);
        assert_eq!((budget.available(), budget.waiters()), (limit, 0));
    }
}

fn handler_may_release() {
    static BUDGET: std::sync::OnceLock<SharedBudget> = std::sync::OnceLock::new();
    let segment = small_segment();
    let budget = BUDGET.get_or_init(|| budget(&segment));
    extern "C" fn release(_: i32) {
        BUDGET.get().expect("set before").release(1);
    }
    signal::handle(libc::SIGUSR1, release);
    for round in 0..scale::rounds(500) {
        budget.try_acquire(30).expect("units are available");
        if round % 3 == 0 {
            budget.available();
        }
        for _ in 0..30 {
            // SAFETY: the signal has a handler.
            unsafe { libc::raise(libc::SIGUSR1) };
        }
        assert_eq!(budget.available(), LIMIT);
    }
}

fn waiters_of_all_processes_are_served_in_order() {
    let budget = budget(&small_segment());
    for _ in 0..scale::rounds(4) {
        waits_are_served_in_order(&budget, |_, units, serve| {
            budget.acquire(units).expect("open");
            serve();
            budget.release(units);
        });
        assert_eq!(budget.available(), LIMIT);
    }
}

/// Checks that waits of several processes are served in the order they came.
///
/// `wait` gets a number and units, and calls a function while it has the units. Each needs more
/// than half of all, so they are served one after the other.
pub(crate) fn waits_are_served_in_order(budget: &SharedBudget, wait: impl Fn(u64, u64, &dyn Fn())) {
    let served = &shared_words()[0];
    budget.try_acquire(LIMIT).expect("units are available");
    let waiters: Vec<_> = [60, 51, 90, 70, LIMIT, 55]
        .into_iter()
        .zip(0..)
        .map(|(units, number)| {
            let before = budget.waiters();
            let serve = || assert_eq!(served.fetch_add(1, SeqCst), number, "another order");
            let process = fork::start(|| wait(number, units, &serve));
            until(|| budget.waiters() > before);
            assert_eq!(budget.try_acquire(1), exhausted(0));
            process
        })
        .collect();
    assert_eq!((budget.waiters(), budget.available()), (6, 0));
    for _ in 0..LIMIT {
        budget.release(1);
    }
    for waiter in waiters {
        fork::finish(waiter).expect("its turn");
    }
    assert_eq!((served.load(SeqCst), budget.waiters()), (6, 0));
}

// Nobody makes a call when the kernel releases the lock, so the waiters look themselves.
fn waiters_get_units_of_killed_holders() {
    let segment = small_segment();
    let budget = budget(&segment);
    let mut longest = Duration::ZERO;
    for _ in 0..scale::rounds(10) {
        let served = &shared_words()[0];
        let hold = || std::mem::forget(budget.lease(LIMIT).expect("units are available"));
        let holder = Holder::start(hold, || ());
        let waiters = Processes::start(3, |_| {
            budget.acquire(30).expect("open");
            served.fetch_add(1, SeqCst);
            until(|| served.load(SeqCst) == 3);
        });
        until(|| budget.waiters() == 3);
        holder.kill();
        let killed = Instant::now();
        until(|| served.load(SeqCst) == 3);
        longest = longest.max(killed.elapsed());
        waiters.finish();
        until(|| budget.acquired() == 0);
    }
    println!("the longest wait after a kill: {longest:?}");
}

// The kernel kills the releaser in the system call that would wake the waiter.
fn waiters_find_grants_whose_wake_is_lost() {
    let budget = budget(&small_segment());
    let mut delays = vec![];
    for _ in 0..scale::rounds(20) {
        let [step, served, ..] = shared_words();
        let releaser = fork::start(|| {
            budget.try_acquire(LIMIT).expect("units are available");
            step.store(1, SeqCst);
            until(|| step.load(SeqCst) == 2);
            let no_wakes = [(libc::SYS_futex, libc::SECCOMP_RET_KILL_PROCESS)];
            install(no_wakes, libc::SECCOMP_RET_ALLOW).expect("a filter");
            budget.release(LIMIT);
        });
        until(|| step.load(SeqCst) == 1);
        let waiter = Processes::start(1, |_| {
            budget.acquire(70).expect("open");
            served.store(1, SeqCst);
        });
        until(|| budget.waiters() == 1);
        step.store(2, SeqCst);
        fork::finish(releaser).expect_err("killed before its wake");
        let lost = Instant::now();
        until(|| served.load(SeqCst) == 1);
        delays.push(lost.elapsed());
        waiter.finish();
        until(|| budget.acquired() == 0);
    }
    delays.sort_unstable();
    let (median, longest) = (delays[delays.len() / 2], delays[delays.len() - 1]);
    println!("{} lost wakes, which delayed by {median:?}, at most by {longest:?}", delays.len());
}

fn killed_waiters_block_nobody() {
    let segment = small_segment();
    let budget = budget(&segment);
    budget.try_acquire(LIMIT).expect("units are available");
    for _ in 0..scale::rounds(10) {
        let start = |units| {
            let before = budget.waiters();
            let process = Processes::start(1, |_| {
                budget.acquire(units).expect("open");
                budget.release(units);
            });
            until(|| budget.waiters() > before);
            process
        };
        let (first, second) = (start(50), start(10));
        drop(first);
        budget.release(20);
        // The killed one needs more units, and is the first.
        second.finish();
        until(|| budget.try_acquire(20).is_ok());
        assert_eq!((budget.acquired(), budget.waiters()), (LIMIT, 0));
    }
}

fn waits_end_at_their_deadline() {
    let segment = small_segment();
    let budget = budget(&segment);
    budget.try_acquire(95).expect("units are available");
    let brief = Duration::from_millis(3);
    for _ in 0..scale::rounds(30) {
        assert_eq!(budget.acquire_timeout(6, brief), exhausted(5));
        assert_eq!(budget.acquire_deadline(6, Instant::now()), exhausted(5));
        budget.acquire_timeout(5, Duration::ZERO).expect("units are available");
        budget.release(5);
        assert_eq!(budget.waiters(), 0);
    }
    // Units that came in time are acquired.
    std::thread::scope(|threads| {
        threads.spawn(|| budget.acquire_timeout(50, Duration::MAX).expect("units"));
        until(|| budget.waiters() == 1);
        budget.release(45);
    });
    assert_eq!(budget.acquired(), LIMIT);
}

// There are 64 waiters for 8 participants.
fn waiters_without_a_place_get_units() {
    let segment = small().participants(8).anonymous().expect("a segment");
    let budget = budget(&segment);
    budget.try_acquire(LIMIT).expect("units are available");
    std::thread::scope(|threads| {
        for _ in 0..70 {
            threads.spawn(|| {
                budget.acquire(3).expect("open");
                budget.release(3);
            });
        }
        until(|| budget.waiters() == 64);
        budget.release(10);
    });
    assert_eq!((budget.acquired(), budget.waiters()), (LIMIT - 10, 0));
}

fn close_ends_waits_of_all_processes() {
    let segment = small_segment();
    let budget = budget(&segment);
    budget.try_acquire(80).expect("units are available");
    let closed = Err(SharedAcquireError::Closed);
    let waiters = Processes::start(4, |process| match process % 2 {
        0 => assert_eq!(budget.acquire(30), closed),
        _ => assert_eq!(budget.acquire_timeout(30, Duration::MAX), closed),
    });
    until(|| budget.waiters() == 4);
    fork::run(|| budget.close()).expect("a child that closes");
    waiters.finish();
    assert!(budget.is_closed());
    assert_eq!((budget.try_acquire(1), budget.acquire(1)), (closed.clone(), closed.clone()));
    assert_eq!((budget.waiters(), budget.acquired()), (0, 80));
    budget.release(80);
    assert_eq!((budget.acquired(), budget.available()), (0, LIMIT));
    assert!(segment.budget("budget", 5).expect("the budget").is_closed());
    budget.close();
    assert_eq!(budget.try_acquire(1), closed);
}

fn raised_limit_serves_waiters_of_all_processes() {
    let segment = small_segment();
    let budget = budget(&segment);
    let waiters = Processes::start(3, |_| {
        budget.acquire(2 * LIMIT).expect("open");
        budget.release(2 * LIMIT);
    });
    until(|| budget.waiters() == 3);
    assert_eq!(budget.try_acquire(1), exhausted(0));
    fork::run(|| budget.set_limit(2 * LIMIT)).expect("a child that raises the limit");
    waiters.finish();
    until(|| budget.acquired() == 0);
    assert_eq!((budget.limit(), budget.available()), (2 * LIMIT, 2 * LIMIT));
}

fn lowered_limit_takes_nothing() {
    let segment = small_segment();
    let budget = budget(&segment);
    budget.try_acquire(60).expect("units are available");
    fork::run(|| budget.set_limit(50)).expect("a child that lowers the limit");
    assert_eq!((budget.limit(), budget.acquired(), budget.available()), (50, 60, 0));
    assert_eq!(budget.try_acquire(1), exhausted(0));
    budget.release(9);
    assert_eq!(budget.try_acquire(1), exhausted(0));
    budget.release(2);
    budget.try_acquire(1).expect("units are available");
    assert_eq!(budget.try_acquire(1), exhausted(0));
    budget.release(50);
    assert_eq!(budget.available(), 50);
}

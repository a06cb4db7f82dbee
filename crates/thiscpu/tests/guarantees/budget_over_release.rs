//! `Budget`: a release of too many units is counted and reported, and harms no other call.

use std::cell::Cell;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use thiscpu::TryAcquireError::Exhausted;
use thiscpu::{Budget, Tier};

use super::budget::{LARGE, poll, to_percpu_mode};
use crate::common::{
    Random, Scenario, TIERS, at_sampled_steps, can_single_step, conflict_in_handler, fork, scale,
    scenario, together,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(budget::over_release_is_counted, TIERS),
    scenario!(budget::over_release_is_reported_once, TIERS),
    scenario!(budget::over_release_is_reported_after_waiters_were_woken, TIERS),
    scenario!(budget::over_release_fails_no_call, TIERS),
    scenario!(budget::over_release_does_not_abort_an_unwinding_thread, TIERS),
    scenario!(budget::over_release_exceeds_the_limit_by_the_excess_at_most, TIERS),
    scenario!(budget::huge_over_releases_do_not_overflow, TIERS),
    scenario!(budget::handler_may_release_too_much, TIERS).needs(can_single_step),
    scenario!(budget::handler_may_release_huge_amounts, TIERS).needs(can_single_step),
];

fn over_release_is_counted() {
    let budget = Budget::new(100);
    budget.try_acquire(10).expect("units are available");
    budget.release(11);
    assert_eq!((budget.available(), budget.acquired(), budget.over_released()), (100, 0, 1));
    // More than the limit, and more than any limit.
    budget.try_acquire(10).expect("units are available");
    budget.release(150);
    assert_eq!((budget.available(), budget.over_released()), (100, 141));
    budget.try_acquire(10).expect("units are available");
    budget.release(Budget::LIMIT_MAX + 1);
    assert_eq!(budget.over_released(), 141 + Budget::LIMIT_MAX + 1);
    assert_eq!((budget.available(), budget.acquired()), (90, 10), "it is no release");
    budget.release(u64::MAX);
    assert_eq!(budget.over_released(), u64::MAX);
    budget.release(10);
    assert_eq!((budget.available(), budget.over_released()), (100, u64::MAX));
    // A limit below the units held makes no release wrong.
    let budget = Budget::new(1_000);
    budget.try_acquire(900).expect("units are available");
    budget.set_limit(10);
    budget.release(900);
    assert_eq!((budget.available(), budget.over_released()), (10, 0));
    // These units go to a lane, which does not notice.
    let budget = Budget::new(LARGE);
    to_percpu_mode(&budget);
    budget.release(25);
    let found = if thiscpu::tier() == Ok(Tier::Atomic) { 25 } else { 0 };
    assert_eq!(budget.over_released(), found);
    assert_eq!((budget.available(), budget.over_released()), (LARGE, 25));
    assert_eq!(budget.acquired(), 0);
}

fn over_release_is_reported_once() {
    let (status, text) = fork::capture_stderr(|| {
        let (first, second) = (Budget::new(100), Budget::new(200));
        first.release(7);
        first.release(3);
        second.release(u64::MAX);
        second.release(1);
        assert_eq!((first.over_released(), second.over_released()), (10, u64::MAX));
    });
    assert_eq!(status, 0, "{text}");
    let lines: Vec<_> = text.lines().collect();
    let [first, second] = lines[..] else { panic!("not one line for each budget: {text}") };
    assert!(first.starts_with("thiscpu: budget over-released: 7 units more"), "{first}");
    assert!(first.contains("limit 100,") && first.contains("find the caller"), "{first}");
    assert!(second.contains("limit 200,"), "{second}");
    // No excess, no line.
    let (_, text) = fork::capture_stderr(|| {
        let budget = Budget::new(100);
        budget.try_acquire(10).expect("units are available");
        budget.release(10);
        assert_eq!(budget.over_released(), 0);
    });
    assert_eq!(text, "");
}

// Standard error is a full pipe, which only the waiter reads.
fn over_release_is_reported_after_waiters_were_woken() {
    let (status, text) = fork::capture_stderr(|| {
        let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
        // SAFETY: these calls change only descriptors of this process.
        unsafe {
            libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK);
            while writer.write(&[0; 4096]).is_ok() {}
            libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, 0);
            libc::dup2(writer.as_raw_fd(), libc::STDERR_FILENO);
        }
        let budget = Budget::new(4);
        budget.try_acquire(1).expect("a unit is available");
        std::thread::scope(|threads| {
            threads.spawn(|| {
                budget.acquire(4).expect("open");
                let mut bytes = [0; 1 << 16];
                while reader.read(&mut bytes).expect("a pipe") == bytes.len() {}
            });
            while budget.waiters() == 0 {
                std::thread::yield_now();
            }
            budget.release(10);
        });
        assert_eq!((budget.acquired(), budget.over_released()), (4, 9));
    });
    assert_eq!(status, 0, "{text}");
}

// Whichever call finds the excess, it returns what it would return without the bug.
fn over_release_fails_no_call() {
    type Finder = (&'static str, fn(&Budget));
    let finders: [Finder; 12] = [
        ("try_acquire", |budget| {
            assert_eq!(budget.try_acquire(LARGE + 1), Err(Exhausted { available: LARGE }));
        }),
        ("try_acquire_up_to", |budget| {
            assert_eq!(budget.try_acquire_up_to(2 * LARGE), LARGE);
            budget.release(LARGE);
        }),
        ("acquire", |budget| {
            budget.acquire(LARGE).expect("open");
            budget.release(LARGE);
        }),
        ("acquire_timeout", |budget| {
            let refused = budget.acquire_timeout(LARGE + 1, Duration::from_micros(1));
            assert_eq!(refused, Err(Exhausted { available: LARGE }));
        }),
        ("a poll", |budget| {
            assert!(poll(pin!(budget.acquire_async(LARGE))).is_ready());
        }),
        ("a dropped future", |budget| {
            assert!(poll(pin!(budget.acquire_async(LARGE + 1))).is_pending());
        }),
        ("available", |budget| assert_eq!(budget.available(), LARGE)),
        ("acquired", |budget| assert_eq!(budget.acquired(), 0)),
        ("set_limit", |budget| {
            budget.set_limit(LARGE + 9);
            assert_eq!(budget.available(), LARGE + 9);
            budget.set_limit(LARGE);
        }),
        ("release", |budget| {
            budget.try_acquire(LARGE).expect("units are available");
            budget.release(LARGE);
        }),
        ("a dropped lease", |budget| drop(budget.lease(LARGE).expect("units are available"))),
        ("a dropped reserve", |budget| {
            let reserve = budget.try_reserve(LARGE).expect("units are available");
            assert_eq!((reserve.units(), reserve.available()), (LARGE, LARGE));
        }),
    ];
    for (what, find) in finders {
        for excess in [1, 25, LARGE + 1] {
            let budget = Budget::new(LARGE);
            to_percpu_mode(&budget);
            budget.release(excess);
            find(&budget);
            assert_eq!(budget.available(), LARGE, "{what}, {excess}");
            assert_eq!(budget.over_released(), excess, "{what}, {excess}");
        }
    }
}

// The drop of an innocent lease finds the excess while its thread unwinds.
fn over_release_does_not_abort_an_unwinding_thread() {
    for limit in [100, LARGE] {
        let budget = Budget::new(limit);
        let work = AssertUnwindSafe(|| {
            let _lease = budget.lease(10).expect("units are available");
            budget.release(10);
            panic!("a task fails");
        });
        let panic = catch_unwind(work).expect_err("the task's panic");
        assert_eq!(*panic.downcast::<&str>().expect("a message"), "a task fails");
        assert_eq!((budget.available(), budget.over_released()), (limit, 10));
    }
}

fn over_release_exceeds_the_limit_by_the_excess_at_most() {
    const WRONG: u64 = 200;
    for limit in [300, 2_000, LARGE] {
        let (budget, held) = (Budget::new(limit), AtomicU64::new(0));
        let work = |thread: usize| {
            let mut random = Random::new(thread as u64);
            for round in 0..scale::rounds(20_000) {
                let n = 1 + random.below(limit / 2);
                if thread == 0 && round < WRONG {
                    budget.release(1);
                } else if budget.try_acquire(n).is_ok() {
                    let now = held.fetch_add(n, SeqCst) + n;
                    assert!(now <= limit + WRONG, "{now} held, of {limit}");
                    held.fetch_sub(n, SeqCst);
                    budget.release(n);
                }
            }
        };
        together(4, work);
        assert_eq!((budget.available(), budget.acquired()), (limit, 0));
        let found = budget.over_released();
        assert_eq!(found, WRONG.min(scale::rounds(20_000)), "all excess is found in the end");
        // The budget keeps its limit again.
        assert_eq!(budget.try_acquire(limit + 1), Err(Exhausted { available: limit }));
    }
}

// Each is as much as a budget can have, and the pool's word has room for a few of them.
fn huge_over_releases_do_not_overflow() {
    const HUGE: u64 = Budget::LIMIT_MAX;
    for limit in [100, HUGE] {
        let budget = Budget::new(limit);
        let rounds = scale::rounds(2_000).min(HUGE / 5_000);
        together(4, |thread| {
            for _ in 0..rounds {
                match thread {
                    // Holds the lock most of the time.
                    0 => assert!(budget.available() <= limit),
                    _ => budget.release(HUGE),
                }
                assert!(budget.try_acquire_up_to(0) == 0);
            }
        });
        assert_eq!((budget.available(), budget.acquired()), (limit, 0));
        let released = u128::from(HUGE) * 3 * u128::from(rounds);
        assert_eq!(budget.over_released(), u64::try_from(released).unwrap_or(u64::MAX));
    }
}

// The interrupted thread may hold the lock, so the handler's release must not wait for it.
fn handler_may_release_too_much() {
    static BUDGET: Budget = Budget::new(LARGE);
    conflict_in_handler(|| {
        BUDGET.release(7);
        BUDGET.release(LARGE + 1);
    });
    let found = Cell::new(0);
    let check = |steps, reached, available| {
        assert!(available <= LARGE);
        assert_eq!(BUDGET.available(), LARGE, "after {steps}");
        found.set(found.get() + if reached { LARGE + 8 } else { 0 });
        assert_eq!(BUDGET.over_released(), found.get(), "after {steps}");
    };
    at_sampled_steps(|| to_percpu_mode(&BUDGET), || BUDGET.available(), |_| (), check);
}

// While the interrupted thread holds the lock, nobody can discard what the handler releases.
fn handler_may_release_huge_amounts() {
    static BUDGET: Budget = Budget::new(LARGE);
    conflict_in_handler(|| (0..40).for_each(|_| BUDGET.release(Budget::LIMIT_MAX)));
    let check = |steps, _, available| {
        assert!(available <= LARGE);
        assert_eq!((BUDGET.available(), BUDGET.acquired()), (LARGE, 0), "after {steps}");
    };
    at_sampled_steps(|| to_percpu_mode(&BUDGET), || BUDGET.available(), |_| (), check);
    assert!(BUDGET.over_released() >= Budget::LIMIT_MAX);
}

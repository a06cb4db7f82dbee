//! `Budget`: a forked child has what its parent had, whatever was under way.

use std::future::Future;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::{Context, Waker};

use thiscpu::{__test_support, Budget, Exhausted, Tier};

use super::budget::{LARGE, to_percpu_mode};
use super::budget_waiters::until_queued;
use crate::common::single_step::{at_every_step, at_sampled_steps, can_single_step};
use crate::common::threads::together;
use crate::common::{Scenario, TIERS, fork, scale, scenario};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(budget::child_is_exact_when_forked_during_acquire, TIERS).needs(can_single_step),
    scenario!(budget::child_is_exact_when_forked_during_recall, TIERS).needs(can_single_step),
    scenario!(budget::child_repeats_interrupted_recall, TIERS).needs(can_single_step),
    scenario!(budget::child_is_exact_when_forked_during_set_limit, TIERS).needs(can_single_step),
    scenario!(budget::child_ignores_waiters_of_parent, TIERS),
    scenario!(budget::child_threads_form_a_new_queue, TIERS),
    scenario!(budget::child_may_poll_or_drop_inherited_future, TIERS),
];

/// In a child: the calling thread holds what it knows of, and another may hold up to `unknown`.
fn assert_right_in_child(budget: &Budget, known: u64, unknown: u64) {
    let held = budget.acquired();
    assert!(known <= held && held <= known + unknown, "{held}, not {known} to {}", known + unknown);
    let free = budget.available();
    assert_eq!(held + free, budget.limit());
    assert_eq!(budget.try_acquire(free + 1), Err(Exhausted { available: free }));
    budget.try_acquire(free).expect("so many are free");
    budget.release(free);
    to_percpu_mode(budget);
    assert_eq!(budget.acquired(), held);
}

fn child_is_exact_when_forked_during_acquire() {
    let budget = &Budget::new(LARGE);
    to_percpu_mode(budget);
    // More than a lane has left, so that it borrows.
    let acquire = || budget.try_acquire(3_000).expect("there is room");
    let conflict = |_| {
        fork::run(|| assert_right_in_child(budget, 0, 3_000)).expect("a child that is right");
    };
    at_sampled_steps(|| (), acquire, conflict, |_, _, ()| budget.release(3_000));
    assert_eq!(budget.available(), LARGE);
}

fn child_is_exact_when_forked_during_recall() {
    let budget = &Budget::new(LARGE);
    let conflict = |_| {
        fork::run(|| assert_right_in_child(budget, 0, 0)).expect("a child that is right");
    };
    let refused = || budget.try_acquire(LARGE + 1);
    let check = |steps, _, refused| {
        assert_eq!(refused, Err(Exhausted { available: LARGE }), "stopped after {steps}");
    };
    at_sampled_steps(|| to_percpu_mode(budget), refused, conflict, check);
}

/// A recall that a fork cut in two is done again in the child: lanes would hold nothing for ever.
fn child_repeats_interrupted_recall() {
    let budget = &Budget::new(LARGE);
    let done_again = AtomicU64::new(0);
    let conflict = |_| {
        let child = fork::run(|| {
            let before = __test_support::recalls(budget);
            for _ in 0..100 {
                budget.try_acquire(1).expect("there is room");
                budget.release(1);
            }
            if __test_support::recalls(budget) != before {
                // A child reports by how it ends.
                resume_unwind(Box::new("done again"));
            }
        });
        done_again.fetch_add(u64::from(child.is_err()), SeqCst);
    };
    at_sampled_steps(|| to_percpu_mode(budget), || budget.available(), conflict, |_, _, _| ());
    assert_eq!(done_again.into_inner() == 0, thiscpu::tier() == Ok(Tier::Atomic));
}

/// The limit is either of the two, and what is held does not depend on which.
fn child_is_exact_when_forked_during_set_limit() {
    let budget = &Budget::new(LARGE);
    budget.try_acquire(300).expect("there is room");
    for (old, new) in [(LARGE, LARGE / 2), (LARGE / 2, LARGE)] {
        let wrong = AtomicU64::new(0);
        let conflict = |_| {
            let child = fork::run(|| assert_right_in_child(budget, 300, 0));
            wrong.fetch_add(u64::from(child.is_err()), SeqCst);
        };
        let change = || budget.set_limit(new);
        // Not by who forks: this thread would wait for that one's answer, for a minute.
        let check = |steps, _, ()| {
            assert_eq!(wrong.load(SeqCst), 0, "a child is wrong after {steps}");
            budget.set_limit(old);
        };
        // Tight all the while, so that it is short. What a fork must not come between unseen is a few instructions, and late.
        at_every_step(|| (), change, conflict, check);
        budget.set_limit(new);
    }
    assert_eq!(budget.acquired(), 300);
}

/// Waiters of the parent do not stand in the way of a child.
fn child_ignores_waiters_of_parent() {
    let budget = &Budget::new(100);
    budget.try_acquire(60).expect("so many are free");
    std::thread::scope(|threads| {
        threads.spawn(|| budget.acquire(80));
        until_queued(budget);
        let child = fork::run(|| {
            assert_eq!(budget.try_acquire(41), Err(Exhausted { available: 40 }));
            budget.acquire(40);
            assert_eq!(budget.try_acquire(1), Err(Exhausted { available: 0 }));
            budget.release(100);
            assert_eq!(budget.available(), 100);
        });
        // The waiter first, or this would wait for it.
        budget.release(60);
        child.expect("a child that is right");
    });
    assert_eq!(budget.acquired(), 80);
}

/// Threads of a child find out at the same time that its parent's waiters are not there, and wait for
/// each other from the beginning.
fn child_threads_form_a_new_queue() {
    let budget = &Budget::new(100);
    budget.try_acquire(60).expect("so many are free");
    std::thread::scope(|threads| {
        threads.spawn(|| budget.acquire(80));
        until_queued(budget);
        let child = |_| {
            fork::run(|| {
                let work = |thread: usize| {
                    if thread == 0 {
                        budget.release(60);
                    } else if let got @ 1.. = budget.try_acquire_up_to(40) {
                        budget.release(got);
                    }
                    for _ in 0..10 {
                        budget.acquire(70);
                        budget.release(70);
                    }
                };
                together(3, work, || {});
                assert_eq!(budget.available(), 100);
            })
        };
        let children = (0..scale::rounds(100)).try_for_each(child);
        budget.release(60);
        children.expect("children that are right");
    });
    assert_eq!(budget.acquired(), 80);
}

/// A task that waited in the parent waits anew in a child, or gives up there, without a trace.
fn child_may_poll_or_drop_inherited_future() {
    let budget = &Budget::new(100);
    budget.try_acquire(60).expect("so many are free");
    let wait = || {
        let mut future = Box::pin(budget.acquire_async(70));
        assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        future
    };
    let (mut first, second) = (wait(), wait());
    fork::run(|| {
        assert_eq!(budget.available(), 40);
        let third = wait();
        drop(second);
        assert!(first.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(third);
        budget.release(60);
        let poll = first.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(poll.is_ready());
        drop(poll);
        assert_eq!(budget.available(), 100);
    })
    .expect("a child that is right");
}

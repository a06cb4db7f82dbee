//! `Budget`: a forked child has the units of its parent, at whatever instruction it was forked.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use thiscpu::TryAcquireError::Exhausted;
use thiscpu::{__test_support, Budget, Tier};

use super::budget::{LARGE, poll, to_percpu_mode};
use super::budget_waiters::until_queued;
use crate::common::{
    Scenario, Steps, TIERS, at_sampled_steps, can_single_step, fork, fork_at_steps, scale,
    scenario, together,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(budget::child_is_exact_when_forked_during_acquire, TIERS).needs(can_single_step),
    scenario!(budget::child_is_exact_when_forked_during_recall, TIERS).needs(can_single_step),
    scenario!(budget::child_repeats_interrupted_recall, TIERS).needs(can_single_step),
    scenario!(budget::child_is_exact_when_forked_during_set_limit, TIERS)
        .needs(can_single_step)
        .slow(),
    scenario!(budget::child_ignores_waiters_of_parent, TIERS),
    scenario!(budget::child_threads_form_a_new_queue, TIERS),
    scenario!(budget::child_may_poll_or_drop_inherited_future, TIERS),
];

/// Asserts in a child that the budget is consistent.
///
/// The calling thread holds `known` units, and a thread of the parent up to `unknown`.
fn assert_exact_in_child(budget: &Budget, known: u64, unknown: u64) {
    let held = budget.acquired();
    assert!(known <= held && held <= known + unknown, "{held}, not {known} to {}", known + unknown);
    let available = budget.available();
    assert_eq!(held + available, budget.limit());
    assert_eq!(budget.try_acquire(available + 1), Err(Exhausted { available }));
    budget.try_acquire(available).expect("units are available");
    budget.release(available);
    to_percpu_mode(budget);
    assert_eq!(budget.acquired(), held);
}

fn child_is_exact_when_forked_during_acquire() {
    let budget = &Budget::new(LARGE);
    to_percpu_mode(budget);
    // More than the lane's credit, so it borrows.
    let acquire = || budget.try_acquire(3_000).expect("units are available");
    let child = || assert_exact_in_child(budget, 0, 3_000);
    fork_at_steps(Steps::Sampled, || (), acquire, child, |()| budget.release(3_000));
    assert_eq!(budget.available(), LARGE);
}

fn child_is_exact_when_forked_during_recall() {
    let budget = &Budget::new(LARGE);
    let child = || assert_exact_in_child(budget, 0, 0);
    let refused = || budget.try_acquire(LARGE + 1);
    let check = |refused| assert_eq!(refused, Err(Exhausted { available: LARGE }));
    fork_at_steps(Steps::Sampled, || to_percpu_mode(budget), refused, child, check);
}

// A child repeats a recall that the fork interrupted; otherwise lanes would never get credit again.
fn child_repeats_interrupted_recall() {
    let budget = &Budget::new(LARGE);
    let repeated = AtomicU64::new(0);
    let conflict = |_| {
        let child = fork::run(|| {
            let before = __test_support::recalls(budget);
            for _ in 0..100 {
                budget.try_acquire(1).expect("units are available");
                budget.release(1);
            }
            if __test_support::recalls(budget) != before {
                // A child reports by its exit status.
                resume_unwind(Box::new("repeated"));
            }
        });
        repeated.fetch_add(u64::from(child.is_err()), SeqCst);
    };
    at_sampled_steps(|| to_percpu_mode(budget), || budget.available(), conflict, |_, _, _| ());
    assert_eq!(repeated.into_inner() == 0, thiscpu::tier() == Ok(Tier::Atomic));
}

// The child has the old limit or the new one, and exactly the held units.
fn child_is_exact_when_forked_during_set_limit() {
    let budget = &Budget::new(LARGE);
    budget.try_acquire(300).expect("units are available");
    for (old, new) in [(LARGE, LARGE / 2), (LARGE / 2, LARGE)] {
        let change = || budget.set_limit(new);
        let child = || assert_exact_in_child(budget, 300, 0);
        // The budget stays in shared mode, so the call is short. The critical instructions are few
        // and come late.
        fork_at_steps(Steps::Every, || (), change, child, |()| budget.set_limit(old));
        budget.set_limit(new);
    }
    assert_eq!(budget.acquired(), 300);
}

/// Forks `children` while 60 of 100 units are held, and a thread waits for 80.
fn with_waiter_in_parent(children: u64, child: impl Fn(&Budget)) {
    let budget = &Budget::new(100);
    budget.try_acquire(60).expect("units are available");
    std::thread::scope(|threads| {
        threads.spawn(|| budget.acquire(80).expect("open"));
        until_queued(budget);
        let ended = (0..children).try_for_each(|_| fork::run(|| child(budget)));
        // Serves the waiter first, because a panic here would wait for it.
        budget.release(60);
        ended.expect("consistent children");
    });
    assert_eq!(budget.acquired(), 80);
}

// Waiters of the parent do not block the child's requests.
fn child_ignores_waiters_of_parent() {
    with_waiter_in_parent(1, |budget| {
        assert_eq!(budget.try_acquire(41), Err(Exhausted { available: 40 }));
        budget.acquire(40).expect("open");
        assert_eq!(budget.try_acquire(1), Err(Exhausted { available: 0 }));
        budget.release(100);
        assert_eq!(budget.available(), 100);
    });
}

// A child's threads discover at once that the parent's waiters are gone, and form a new queue.
fn child_threads_form_a_new_queue() {
    with_waiter_in_parent(scale::rounds(100), |budget| {
        let work = |thread: usize| {
            if thread == 0 {
                budget.release(60);
            } else if let acquired @ 1.. = budget.try_acquire_up_to(40) {
                budget.release(acquired);
            }
            for _ in 0..10 {
                budget.acquire(70).expect("open");
                budget.release(70);
            }
        };
        together(3, work);
        assert_eq!(budget.available(), 100);
    });
}

// A child may poll a future that waited in the parent, which queues again, or drop it.
fn child_may_poll_or_drop_inherited_future() {
    let budget = &Budget::new(100);
    budget.try_acquire(60).expect("units are available");
    let wait = || {
        let mut future = Box::pin(budget.acquire_async(70));
        assert!(poll(future.as_mut()).is_pending());
        future
    };
    let (mut first, second) = (wait(), wait());
    fork::run(|| {
        assert_eq!(budget.available(), 40);
        let third = wait();
        drop(second);
        assert!(poll(first.as_mut()).is_pending());
        drop(third);
        budget.release(60);
        assert!(poll(first.as_mut()).is_ready());
        assert_eq!(budget.available(), 100);
    })
    .expect("a consistent child");
}

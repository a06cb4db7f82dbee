//! Budgets in every order of steps, with weak memory: recalls, loans and waiters.

use thiscpu::TryAcquireError::Exhausted;
use thiscpu::model;
use thiscpu::{Budget, Counters};

use crate::counter_history::take_lanes;
use crate::run::in_every_order;

const LIMIT: u64 = 400;

static BUDGET: Budget = Budget::new(LIMIT);

/// Puts the budget into per-CPU mode; the first `cpus` CPUs have lanes without credit.
fn to_percpu_mode(cpus: usize) {
    for cpu in (0..cpus).chain([0]) {
        model::run_on(cpu);
        let calls = if cpu == 0 { 40 } else { 1 };
        (0..calls).for_each(|_| acquire(0));
    }
}

fn acquire(n: u64) {
    BUDGET.try_acquire(n).expect("units are available");
}

fn assert_refused(n: u64, available: u64) {
    assert_eq!(BUDGET.try_acquire(n), Err(Exhausted { available }));
}

// Units that a lane borrows during a recall are back in the pool when the recall ends.
#[test]
fn recall_returns_concurrent_loan() {
    in_every_order(2, || {
        to_percpu_mode(2);
        let borrower = model::spawn(1, || acquire(1));
        let available = BUDGET.available();
        assert!(available == LIMIT || available == LIMIT - 1, "{available}");
        borrower.join();
        // The lane would grant this if it had kept credit.
        model::run_on(1);
        acquire(10);
        model::run_on(0);
        assert_refused(LIMIT - 1, LIMIT - 11);
    });
}

/// Makes the lane of CPU `cpu` borrow some units.
fn lend(cpu: usize) {
    model::run_on(cpu);
    acquire(1);
    BUDGET.release(1);
    model::run_on(0);
}

// A unit is released on one lane and acquired on another: it counts as available at most once.
//
// A request above the limit is always refused, and its error says how many units were available.
#[test]
fn refusal_counts_moving_unit_once() {
    in_every_order(3, || {
        to_percpu_mode(2);
        lend(1);
        lend(2);
        model::run_on(1);
        acquire(1);
        model::run_on(0);
        let carrier = model::spawn(1, || {
            BUDGET.release(1);
            model::run_on(2);
            acquire(1);
        });
        let available = BUDGET.try_acquire(LIMIT + 1).expect_err("above the limit").available();
        assert!(available == LIMIT || available == LIMIT - 1, "{available}");
        carrier.join();
        assert_refused(LIMIT, LIMIT - 1);
    });
}

// One thread wants the whole limit, another one unit of its lane: exactly one succeeds.
#[test]
fn one_of_two_conflicting_requests_succeeds() {
    in_every_order(3, || {
        to_percpu_mode(1);
        lend(1);
        let other = model::spawn(1, || BUDGET.try_acquire(1));
        let all = BUDGET.try_acquire(LIMIT);
        match (all, other.join()) {
            (Ok(()), one) => assert_eq!(one, Err(Exhausted { available: 0 })),
            (all, Ok(())) => assert_eq!(all, Err(Exhausted { available: LIMIT - 1 })),
            neither => panic!("{neither:?}"),
        }
    });
}

// Two threads borrow for the same lane, and a recall collects both loans.
#[test]
fn recall_finds_two_loans_to_one_lane() {
    in_every_order(2, || {
        to_percpu_mode(2);
        let other = model::spawn(1, || acquire(1));
        model::run_on(1);
        acquire(10);
        other.join();
        assert_refused(LIMIT, LIMIT - 11);
    });
}

// The limit drops while a lane has enough credit to exceed it.
#[test]
fn lowered_limit_stops_lane_from_granting() {
    in_every_order(3, || {
        to_percpu_mode(1);
        lend(1);
        acquire(300);
        let other = model::spawn(1, || BUDGET.try_acquire(5));
        BUDGET.set_limit(302);
        // CPU 1's lane had more credit than this.
        model::run_on(1);
        let late = BUDGET.try_acquire(3);
        let held = match other.join() {
            Ok(()) => 305,
            Err(refused) => {
                assert_eq!(refused.available(), 2);
                300
            }
        };
        let available = 302_u64.saturating_sub(held);
        assert_eq!(late, Err(Exhausted { available }));
        assert_eq!(BUDGET.acquired(), held);
    });
}

// A waiter that still holds the lock sees units that are released meanwhile.
#[test]
fn release_is_seen_by_waiter_that_holds_lock() {
    in_every_order(3, || {
        acquire(LIMIT);
        let waiter = model::spawn(1, || BUDGET.acquire(2).expect("open"));
        BUDGET.release(2);
        waiter.join();
        assert_refused(1, 0);
    });
}

// Units above the limit that arrive while a thread holds the lock are discarded by that thread.
#[test]
fn excess_is_discarded_by_thread_that_holds_lock() {
    in_every_order(3, || {
        acquire(1);
        let holder = model::spawn(1, || BUDGET.acquired());
        BUDGET.release(3);
        assert!(holder.join() <= 1);
        assert_eq!(BUDGET.over_released(), 2);
    });
}

// A lane comes into use, borrows and grants units during a refused request.
#[test]
fn refusal_is_exact_when_lane_comes_into_use() {
    in_every_order(2, || {
        to_percpu_mode(1);
        let other = model::spawn(1, || {
            acquire(1);
            acquire(1);
        });
        let available = BUDGET.try_acquire(LIMIT + 1).expect_err("above the limit").available();
        assert!((LIMIT - 2..=LIMIT).contains(&available), "{available}");
        other.join();
        assert_refused(LIMIT, LIMIT - 2);
    });
}

// A thread without a lane uses the pool while the budget goes to shared mode.
#[test]
fn refusal_is_exact_when_pool_is_used() {
    in_every_order(3, || {
        to_percpu_mode(1);
        lend(1);
        acquire(1);
        let other = model::spawn(1, || {
            model::leave_lanes();
            acquire(1);
            BUDGET.release(2);
        });
        let available = BUDGET.try_acquire(LIMIT + 1).expect_err("above the limit").available();
        assert!((LIMIT - 2..=LIMIT).contains(&available), "{available}");
        other.join();
        assert_eq!(BUDGET.available(), LIMIT);
    });
}

// A brief shared mode, after which the pool is nearly empty, does not refuse available units.
#[test]
fn brief_shared_mode_refuses_nothing_wrongly() {
    in_every_order(2, || {
        to_percpu_mode(2);
        let other = model::spawn(1, || BUDGET.try_acquire(LIMIT - 10));
        let available = BUDGET.available();
        assert!(available == LIMIT || available == 10, "{available}");
        acquire(1);
        assert_eq!(other.join(), Ok(()));
    });
}

// A waiter arrives during the call that would restore per-CPU mode: the budget stays shared.
#[test]
fn budget_stays_shared_when_waiter_arrives() {
    // Two counters, because a single one begins without lanes.
    static LANES: Counters<2> = Counters::new();
    in_every_order(2, || {
        take_lanes(&LANES, 2);
        (0..31).for_each(|_| acquire(0));
        acquire(20);
        let waiter = model::spawn(1, || BUDGET.acquire(LIMIT - 10).expect("open"));
        acquire(0);
        BUDGET.release(20);
        waiter.join();
        assert_refused(11, 10);
    });
}

// A waiter sees all that a thread did before it released the units.
#[test]
fn release_happens_before_its_acquire() {
    static OTHER: Budget = Budget::new(1);
    in_every_order(3, || {
        acquire(LIMIT);
        let releaser = model::spawn(1, || {
            OTHER.set_limit(2);
            BUDGET.release(1);
        });
        BUDGET.acquire(1).expect("open");
        assert_eq!(OTHER.limit(), 2);
        releaser.join();
    });
}

// A lane grants exactly the units that it borrowed.
#[test]
fn lane_grants_exactly_its_credit() {
    in_every_order(1, || {
        to_percpu_mode(1);
        lend(1);
        acquire(LIMIT - 60);
        model::run_on(1);
        (0..60).for_each(|_| acquire(1));
        assert_refused(1, 0);
    });
}

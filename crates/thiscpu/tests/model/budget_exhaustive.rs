//! Recalls of a budget in every order of steps, with weak memory.

use thiscpu::model::{self, Machine, exhaustive};
use thiscpu::{Budget, Counters, Exhausted, Tier};

use crate::counter_history::take_lanes;

const LIMIT: u64 = 400;

static BUDGET: Budget = Budget::new(LIMIT);

/// Runs `test` in every order with up to `preemptions` preemptions, in each kind of tier.
fn in_every_order(preemptions: usize, test: fn()) {
    for tier in [Tier::RseqCpu, Tier::Atomic] {
        let orders = exhaustive(Machine::new(3, tier), preemptions, test);
        println!("{tier}: {orders} orders");
    }
}

/// Makes the budget loose, with a lane on each of the first `cpus` CPUs that holds nothing.
fn loosen(cpus: usize) {
    for cpu in (0..cpus).chain([0]) {
        model::run_on(cpu);
        let calls = if cpu == 0 { 40 } else { 1 };
        (0..calls).for_each(|_| acquire(0));
    }
}

fn acquire(n: u64) {
    BUDGET.try_acquire(n).expect("so many are free");
}

fn assert_refused(n: u64, available: u64) {
    assert_eq!(BUDGET.try_acquire(n), Err(Exhausted { available }));
}

/// What a thread borrows while a recall is under way is the pool's again when that is over.
#[test]
fn recall_returns_concurrent_loan() {
    in_every_order(2, || {
        loosen(2);
        let borrower = model::spawn(1, || acquire(1));
        let available = BUDGET.available();
        assert!(available == LIMIT || available == LIMIT - 1, "{available}");
        borrower.join();
        // From the lane, if it has kept anything.
        model::run_on(1);
        acquire(10);
        model::run_on(0);
        assert_refused(LIMIT - 1, LIMIT - 11);
    });
}

/// Lends to the lane of CPU `cpu`: it holds some units then.
fn lend(cpu: usize) {
    model::run_on(cpu);
    acquire(1);
    BUDGET.release(1);
    model::run_on(0);
}

/// A unit that is released on one lane and acquired on the next is free once or not at all. More than the
/// limit is refused whatever happens, and says what was free.
#[test]
fn refusal_counts_moving_unit_once() {
    in_every_order(3, || {
        loosen(2);
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
        let Exhausted { available } = BUDGET.try_acquire(LIMIT + 1).expect_err("above the limit");
        assert!(available == LIMIT || available == LIMIT - 1, "{available}");
        carrier.join();
        assert_refused(LIMIT, LIMIT - 1);
    });
}

/// One wants all of it, the other one unit of its lane's: just one of them gets what it wants.
#[test]
fn one_of_two_conflicting_requests_succeeds() {
    in_every_order(3, || {
        loosen(1);
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

/// Both borrow for the same lane, and a recall finds what either lent it.
#[test]
fn recall_finds_two_loans_to_one_lane() {
    in_every_order(2, || {
        loosen(2);
        let other = model::spawn(1, || acquire(1));
        model::run_on(1);
        acquire(10);
        other.join();
        assert_refused(LIMIT, LIMIT - 11);
    });
}

/// The limit falls while a lane could still grant more than that.
#[test]
fn lowered_limit_stops_lane_from_granting() {
    in_every_order(3, || {
        loosen(1);
        lend(1);
        acquire(300);
        let other = model::spawn(1, || BUDGET.try_acquire(5));
        BUDGET.set_limit(302);
        // Where the lane has had more than that.
        model::run_on(1);
        let late = BUDGET.try_acquire(3);
        let held = match other.join() {
            Ok(()) => 305,
            Err(Exhausted { available }) => {
                assert_eq!(available, 2);
                300
            }
        };
        let available = 302_u64.saturating_sub(held);
        assert_eq!(late, Err(Exhausted { available }));
        assert_eq!(BUDGET.acquired(), held);
    });
}

/// What is released while a waiter still holds the lock is seen by it.
#[test]
fn release_is_seen_by_waiter_that_holds_lock() {
    in_every_order(3, || {
        acquire(LIMIT);
        let waiter = model::spawn(1, || BUDGET.acquire(2));
        BUDGET.release(2);
        waiter.join();
        assert_refused(1, 0);
    });
}

/// A lane that comes into use, is lent units and grants one of them.
#[test]
fn refusal_is_exact_when_lane_comes_into_use() {
    in_every_order(2, || {
        loosen(1);
        let other = model::spawn(1, || {
            acquire(1);
            acquire(1);
        });
        let Exhausted { available } = BUDGET.try_acquire(LIMIT + 1).expect_err("above the limit");
        assert!((LIMIT - 2..=LIMIT).contains(&available), "{available}");
        other.join();
        assert_refused(LIMIT, LIMIT - 2);
    });
}

/// A thread without a lane takes from the pool and gives to it while that becomes tight.
#[test]
fn refusal_is_exact_when_pool_is_used() {
    in_every_order(3, || {
        loosen(1);
        lend(1);
        acquire(1);
        let other = model::spawn(1, || {
            model::leave_lanes();
            acquire(1);
            BUDGET.release(2);
        });
        let Exhausted { available } = BUDGET.try_acquire(LIMIT + 1).expect_err("above the limit");
        assert!((LIMIT - 2..=LIMIT).contains(&available), "{available}");
        other.join();
        assert_eq!(BUDGET.available(), LIMIT);
    });
}

/// Nobody is refused what there is because the budget was tight for a moment, and its pool was short a
/// moment later.
#[test]
fn brief_shared_mode_refuses_nothing_wrongly() {
    in_every_order(2, || {
        loosen(2);
        let other = model::spawn(1, || BUDGET.try_acquire(LIMIT - 10));
        let available = BUDGET.available();
        assert!(available == LIMIT || available == 10, "{available}");
        acquire(1);
        assert_eq!(other.join(), Ok(()));
    });
}

/// The call after which a budget becomes loose, while somebody begins to wait: then it stays tight.
#[test]
fn budget_stays_shared_when_waiter_arrives() {
    // Two, because one alone begins without lanes.
    static LANES: Counters<2> = Counters::new();
    in_every_order(2, || {
        take_lanes(&LANES, 2);
        (0..31).for_each(|_| acquire(0));
        acquire(20);
        let waiter = model::spawn(1, || BUDGET.acquire(LIMIT - 10));
        acquire(0);
        BUDGET.release(20);
        waiter.join();
        assert_refused(11, 10);
    });
}

/// What a releaser did before is seen by who was waiting for the units.
#[test]
fn release_happens_before_its_acquire() {
    static OTHER: Budget = Budget::new(1);
    in_every_order(3, || {
        acquire(LIMIT);
        let releaser = model::spawn(1, || {
            OTHER.set_limit(2);
            BUDGET.release(1);
        });
        BUDGET.acquire(1);
        assert_eq!(OTHER.limit(), 2);
        releaser.join();
    });
}

/// A lane grants just what it was lent, to the last unit.
#[test]
fn lane_grants_exactly_its_credit() {
    in_every_order(1, || {
        loosen(1);
        lend(1);
        acquire(LIMIT - 60);
        model::run_on(1);
        (0..60).for_each(|_| acquire(1));
        assert_refused(1, 0);
    });
}

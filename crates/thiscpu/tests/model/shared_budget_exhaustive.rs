//! Shared budgets in every order of steps, with weak memory.
//!
//! A process is a thread here; one that is killed is a thread that ends early.

use thiscpu::Tier;
use thiscpu::TryAcquireError::{self, Exhausted};
use thiscpu::model::{self, Data, Machine, Process, SharedBudgets, WaitResult};

use crate::run::in_every_order_on;

const LIMIT: u64 = 40;

static BUDGETS: SharedBudgets<LIMIT, 1, 3> = SharedBudgets::new();

/// Runs a test on one machine, because both tiers use this code alike.
fn in_every_order(preemptions: usize, test: impl Fn() + Copy + Send + Sync + 'static) {
    in_every_order_on([Machine::new(2, Tier::Atomic)], preemptions, test);
}

/// Gives slots to processes.
fn attach<const N: usize>() -> [Process; N] {
    std::array::from_fn(|slot| BUDGETS.attach(slot as u32))
}

fn try_acquire(me: Process, n: u64) -> Result<(), TryAcquireError> {
    BUDGETS.try_acquire(0, me, n)
}

fn acquire(me: Process, n: u64) {
    try_acquire(me, n).expect("units are available");
}

fn release(me: Process, n: u64) {
    BUDGETS.release(0, me, n);
}

/// Releases without a look whether the pair is closed.
fn release_at_once(me: Process, n: u64) {
    BUDGETS.release_at_once(0, me, n);
}

/// Opens a process's pair on a CPU, with credit.
fn open_pair(me: Process, cpu: usize) {
    model::run_on(cpu);
    acquire(me, 1);
    release(me, 1);
    model::run_on(0);
}

fn free(me: Process) -> i64 {
    BUDGETS.instant(0, me).1
}

// One process wants all units, another takes some from its pair: exactly one succeeds.
#[test]
fn one_of_two_conflicting_requests_succeeds() {
    in_every_order(2, || {
        let [a, b] = attach();
        open_pair(b, 0);
        let other = model::spawn(0, move || try_acquire(b, 2));
        let all = try_acquire(a, LIMIT);
        match (all, other.join()) {
            (Ok(()), one) => assert_eq!(one, Err(Exhausted { available: 0 })),
            (all, Ok(())) => assert_eq!(all, Err(Exhausted { available: LIMIT - 2 })),
            neither => panic!("{neither:?}"),
        }
        assert!(free(a) == 0 || free(a) == LIMIT as i64 - 2);
    });
}

// A unit is released on one CPU and acquired on another: it counts as available at most once.
#[test]
fn refusal_counts_moving_unit_once() {
    in_every_order(2, || {
        let [a, b] = attach();
        open_pair(b, 0);
        open_pair(b, 1);
        acquire(b, 1);
        let carrier = model::spawn(0, move || {
            release(b, 1);
            model::run_on(1);
            acquire(b, 1);
        });
        let available = try_acquire(a, LIMIT + 1).expect_err("above the limit").available();
        assert!(available == LIMIT || available == LIMIT - 1, "{available}");
        carrier.join();
        assert_eq!(free(a), LIMIT as i64 - 1);
    });
}

// A pair is opened with a batch while another process recalls.
#[test]
fn refusal_counts_concurrent_batch() {
    in_every_order(2, || {
        let [a, b] = attach();
        let other = model::spawn(0, move || acquire(b, 1));
        let available = try_acquire(a, LIMIT + 1).expect_err("above the limit").available();
        assert!(available == LIMIT || available == LIMIT - 1, "{available}");
        other.join();
        assert_eq!(free(a), LIMIT as i64 - 1);
    });
}

// The units of a release that met a closed pair are in the pool when it returns.
#[test]
fn release_to_pair_that_closes_is_not_lost() {
    in_every_order(3, || {
        let [a, b] = attach();
        acquire(b, 1);
        let releaser = model::spawn(0, move || release(b, 1));
        let available = try_acquire(a, LIMIT + 1).expect_err("above the limit").available();
        assert!(available == LIMIT || available == LIMIT - 1, "{available}");
        releaser.join();
        acquire(a, LIMIT);
    });
}

// All pairs are closed. One thread of a process releases to one, and another acquires there.
#[test]
fn release_to_closed_pair_is_not_lost() {
    in_every_order(2, || {
        let [a, b] = attach();
        acquire(b, 2);
        assert_eq!(free(a), LIMIT as i64 - 2);
        let releaser = model::spawn(0, move || release_at_once(b, 1));
        acquire(b, 1);
        let available = try_acquire(a, LIMIT + 1).expect_err("above the limit").available();
        assert!(available == LIMIT - 2 || available == LIMIT - 3, "{available}");
        releaser.join();
        assert_eq!(free(a), LIMIT as i64 - 2);
    });
}

// A waiter joins the queue while units are released to a closed pair: it is granted or woken.
#[test]
fn release_to_closed_pair_is_seen_by_new_waiter() {
    in_every_order(1, || {
        let [a, b] = attach();
        acquire(b, LIMIT);
        assert_eq!(free(a), 0);
        let releaser = model::spawn(0, move || release_at_once(b, 2));
        let wait = match BUDGETS.enqueue(0, a, 2) {
            WaitResult::Waiting(place) => BUDGETS.wait(0, a, place),
            over => over,
        };
        assert!(matches!(wait, WaitResult::Granted), "{wait:?}");
        releaser.join();
        assert_eq!(free(a), 0);
    });
}

// Three processes use the pool at once, so that helpers finish operations of others.
#[test]
fn helped_operations_happen_once() {
    in_every_order(2, || {
        let [a, b, c] = attach();
        // To shared mode, in which each call is an operation of the pool.
        assert_eq!(free(c), LIMIT as i64);
        let other = model::spawn(0, move || {
            acquire(a, 1);
            release(a, 1);
        });
        acquire(b, 2);
        acquire(b, 3);
        other.join();
        assert_eq!([0, 1].map(|slot| BUDGETS.held(0, slot)), [0, 5]);
        assert_eq!(free(c), LIMIT as i64 - 5);
    });
}

// The limit falls while a pair has enough credit to exceed it.
#[test]
fn lowered_limit_stops_pair_from_granting() {
    in_every_order(2, || {
        let [a, b] = attach();
        open_pair(b, 0);
        acquire(a, 30);
        let other = model::spawn(0, move || try_acquire(b, 2));
        BUDGETS.set_limit(0, 31);
        let late = try_acquire(b, 2);
        let held = match other.join() {
            Ok(()) => 32,
            Err(_) => 30,
        };
        let available = 31_u64.saturating_sub(held);
        assert_eq!(late, Err(Exhausted { available }));
        assert_eq!(BUDGETS.instant(0, a), (31, 31 - held as i64));
    });
}

// Two processes find a third one dead at once: its units come back once.
#[test]
fn two_reclaimers_return_units_once() {
    in_every_order(2, || {
        let [a, dead] = [0, 2].map(|slot| BUDGETS.attach(slot));
        acquire(dead, 7);
        model::run_on(1);
        release(dead, 2);
        BUDGETS.end(dead);
        let other = model::spawn(0, || BUDGETS.try_attach(2).is_some());
        let is_mine = BUDGETS.try_attach(2).is_some();
        let is_other = other.join();
        assert!(is_mine || is_other, "nobody could free the slot");
        assert_eq!(free(a), LIMIT as i64);
    });
}

// A slot is used again while a process still reclaims for its last participant.
#[test]
fn late_reclaimer_leaves_next_participant_alone() {
    in_every_order(2, || {
        let [a, b, dead] = attach();
        acquire(dead, 7);
        BUDGETS.end(dead);
        let other = model::spawn(0, move || {
            assert_eq!(free(b), LIMIT as i64);
            BUDGETS.try_attach(2).map(|next| acquire(next, 3)).is_some()
        });
        let seen = free(a);
        let held = if other.join() { 3 } else { 0 };
        assert!(seen == LIMIT as i64 || seen == LIMIT as i64 - held, "{seen}");
        assert_eq!(BUDGETS.held(0, 2), held);
        assert_eq!(free(a), LIMIT as i64 - held);
    });
}

// An acquirer sees all that another process did before it released the units.
#[test]
fn release_happens_before_its_acquire() {
    static WRITTEN: Data = Data::zeroed();
    in_every_order(3, || {
        let [a, b] = attach();
        acquire(b, LIMIT);
        let releaser = model::spawn(0, move || {
            WRITTEN.write(1);
            release(b, 1);
        });
        if try_acquire(a, 1).is_ok() {
            assert_eq!(WRITTEN.read(), 1, "the units came without what preceded their release");
        }
        releaser.join();
    });
}

// A waiter joins the queue while the units are released: it is granted or woken.
#[test]
fn release_is_seen_by_new_waiter() {
    in_every_order(1, || {
        let [a, b] = attach();
        acquire(b, LIMIT);
        let releaser = model::spawn(0, move || release(b, 2));
        let wait = match BUDGETS.enqueue(0, a, 2) {
            WaitResult::Waiting(place) => BUDGETS.wait(0, a, place),
            over => over,
        };
        assert!(matches!(wait, WaitResult::Granted), "{wait:?}");
        releaser.join();
        assert_eq!([0, 1].map(|slot| BUDGETS.held(0, slot)), [2, LIMIT as i64 - 2]);
        assert_eq!(free(a), 0);
    });
}

// The last waiter leaves while another one joins: the queue does not end without the new one.
#[test]
fn new_waiter_is_seen_when_another_leaves() {
    in_every_order(2, || {
        let [a, b, c] = attach();
        acquire(b, LIMIT);
        let WaitResult::Waiting(place) = BUDGETS.enqueue(0, c, 1) else { panic!("no units") };
        let leaver = model::spawn(0, move || {
            let left = BUDGETS.cancel(0, place);
            assert!(matches!(left, WaitResult::Left), "{left:?}");
        });
        let wait = BUDGETS.enqueue(0, a, 2);
        assert!(matches!(wait, WaitResult::Waiting(_)), "{wait:?}");
        leaver.join();
        release(b, 2);
        assert_eq!(BUDGETS.held(0, 0), 2, "the release granted nothing");
    });
}

// A grant and a cancel meet: the units are held, or they are free.
#[test]
fn waiter_is_granted_or_canceled() {
    in_every_order(2, || {
        let [a, b] = attach();
        acquire(b, LIMIT);
        let WaitResult::Waiting(place) = BUDGETS.enqueue(0, a, 2) else { panic!("no units") };
        let releaser = model::spawn(0, move || release(b, 3));
        let held = match BUDGETS.cancel(0, place) {
            WaitResult::Granted => 2,
            WaitResult::Left => 0,
            other => panic!("{other:?}"),
        };
        releaser.join();
        assert_eq!(free(b), 3 - held);
        assert_eq!(BUDGETS.held(0, 0), held);
    });
}

// A waiter leaves, and its entry serves another one, while a release grants.
#[test]
fn grant_goes_to_waiter_it_names() {
    in_every_order(2, || {
        let [a, b, c] = attach();
        acquire(b, LIMIT);
        let WaitResult::Waiting(place) = BUDGETS.enqueue(0, a, 2) else { panic!("no units") };
        let releaser = model::spawn(0, move || release(b, 2));
        let first = BUDGETS.cancel(0, place);
        let second = BUDGETS.enqueue(0, c, 1);
        releaser.join();
        let held = [0, 1, 2].map(|slot| BUDGETS.held(0, slot));
        let first = if matches!(first, WaitResult::Granted) { 2 } else { 0 };
        assert_eq!(held[0], first);
        if let WaitResult::Waiting(place) = second {
            let over = BUDGETS.cancel(0, place);
            assert!(matches!(over, WaitResult::Granted | WaitResult::Left), "{over:?}");
        }
        let held: i64 = [0, 1, 2].map(|slot| BUDGETS.held(0, slot)).iter().sum();
        assert_eq!(free(b), LIMIT as i64 - held);
    });
}

// The participant of a waiter dies while a release grants: the units are not lost.
#[test]
fn units_granted_to_dead_waiter_come_back() {
    in_every_order(2, || {
        let [a, b, dead] = attach();
        acquire(b, LIMIT);
        let WaitResult::Waiting(_) = BUDGETS.enqueue(0, dead, 2) else { panic!("no units") };
        let releaser = model::spawn(0, move || release(b, 2));
        BUDGETS.end(dead);
        BUDGETS.try_attach(2);
        releaser.join();
        assert_eq!(free(a), 2);
        assert_eq!(BUDGETS.held(0, 2), 0);
    });
}

// Closing meets a release: the waiter is granted, or finds the budget closed.
#[test]
fn waiter_is_granted_or_closed() {
    in_every_order(2, || {
        let [a, b] = attach();
        acquire(b, LIMIT);
        let closer = model::spawn(0, move || {
            release(b, 1);
            BUDGETS.close(0);
        });
        let wait = match BUDGETS.enqueue(0, a, 2) {
            WaitResult::Waiting(place) => BUDGETS.wait(0, a, place),
            over => over,
        };
        assert!(matches!(wait, WaitResult::Closed), "{wait:?}");
        closer.join();
        assert_eq!(try_acquire(a, 1), Err(TryAcquireError::Closed));
        assert_eq!(free(a), 1);
    });
}

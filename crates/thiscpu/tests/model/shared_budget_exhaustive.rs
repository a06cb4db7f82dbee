//! Shared budgets in every order of steps, with weak memory, and with deaths at every step.
//!
//! A process is a thread here. It may be killed before each of its steps; then the others reclaim
//! what it held. A test with a death runs once for each step at which the process can die.

use thiscpu::TryAcquireError::Exhausted;
use thiscpu::model::{self, Process, SharedBudgets};

use crate::run::in_every_order;

const LIMIT: u64 = 4;

/// Two budgets, so that a dead process can hold units of both.
type Budgets = SharedBudgets<LIMIT, 2, 3>;

static BUDGETS: Budgets = Budgets::new();

fn acquire(me: Process, n: u64) {
    BUDGETS.try_acquire(0, me, n).expect("units are available");
}

// One process wants all units, another takes one from its pair: exactly one succeeds.
#[test]
fn one_of_two_conflicting_requests_succeeds() {
    in_every_order(2, || {
        let [a, b] = [0, 1].map(|slot| BUDGETS.attach(slot));
        acquire(b, 1);
        BUDGETS.release(0, b, 1);
        let other = model::spawn(0, move || BUDGETS.try_acquire(0, b, 1));
        let all = BUDGETS.try_acquire(0, a, LIMIT);
        match (all, other.join()) {
            (Ok(()), one) => assert_eq!(one, Err(Exhausted { available: 0 })),
            (all, Ok(())) => assert_eq!(all, Err(Exhausted { available: LIMIT - 1 })),
            neither => panic!("{neither:?}"),
        }
    });
}

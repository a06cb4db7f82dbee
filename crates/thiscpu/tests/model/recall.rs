//! Recalls of a budget in every order of steps, with weak memory.

use thiscpu::model::{self, Machine, exhaustive};
use thiscpu::{Budget, Exhausted, Tier};

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
fn a_loan_while_units_are_counted() {
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

//! Shared budgets whose processes release more units than they hold, and may be killed.

use thiscpu::Tier;
use thiscpu::model::{self, Machine, Process, SharedBudgets};

use crate::run::{in_random_orders_on, on_threads};

const LIMIT: u64 = 40;
const PROCESSES: usize = 3;
/// The units that the first process releases and does not hold.
const EXCESS: u64 = 6;

type Budgets = SharedBudgets<LIMIT, 1, { PROCESSES + 1 }>;

const MACHINE: Machine = Machine::new(2, Tier::Atomic);

fn run(budgets: &'static Budgets, me: Process, is_wrong: bool) {
    for _ in 0..1 + model::choose(4) {
        let n = [1, 10, 30, LIMIT][model::choose(4)];
        match model::choose(4) {
            0 => _ = budgets.instant(0, me),
            _ if budgets.try_acquire(0, me, n).is_ok() => budgets.release(0, me, n),
            _ => {}
        }
    }
    if is_wrong {
        for _ in 0..EXCESS / 2 {
            match model::choose(2) {
                0 => budgets.release(0, me, 2),
                _ => budgets.release_at_once(0, me, 2),
            }
        }
    }
}

fn random_calls(deaths: usize) {
    // Leaked, because no other budget may have this address in the same execution.
    let budgets: &Budgets = Box::leak(Box::new(Budgets::new()));
    let last = budgets.attach(PROCESSES as u32);
    on_threads(PROCESSES, 2, move |number| {
        let me = budgets.attach(number as u32);
        let steps = if deaths > 0 { model::choose(200) } else { usize::MAX };
        model::killed_after(steps, || run(budgets, me, number == 0));
        if deaths > 0 {
            budgets.end(me);
        }
    });
    assert_eq!(budgets.instant(0, last), (LIMIT, LIMIT as i64));
    let over = budgets.over_released(0);
    assert!(over == EXCESS || deaths > 0 && over < EXCESS, "{over}");
    budgets.try_acquire(0, last, LIMIT).expect("all units are there");
    assert!(budgets.try_acquire(0, last, 1).is_err());
}

#[test]
fn excess_is_discarded_once() {
    in_random_orders_on(&[MACHINE], 20_000, |_| random_calls(0));
}

#[test]
fn excess_is_discarded_once_with_deaths() {
    in_random_orders_on(&[MACHINE], 20_000, |_| random_calls(1));
}

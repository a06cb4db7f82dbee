//! Budgets under long random runs: every history is linearizable, and every refusal is right.

use std::time::Duration;

use thiscpu::model;
use thiscpu::{Budget, Exhausted};

use crate::history::{Call, Specification};
use crate::run::{CPUS, assert_linearizable, in_random_orders, leave_lanes_if, on_threads, record};

const LIMIT: u64 = 400;

#[derive(Clone, Debug)]
enum Op {
    Acquire(u64, Result<(), Exhausted>),
    AcquireUpTo(u64, u64),
    Release(u64),
    SetLimit(u64),
    Available(u64),
    Acquired(u64),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    limit: u64,
    held: u64,
}

impl State {
    fn available(&self) -> u64 {
        self.limit.saturating_sub(self.held)
    }

    fn with_held(&self, held: u64) -> Option<State> {
        Some(State { held, ..self.clone() })
    }
}

impl Specification for State {
    type Op = Op;

    fn after(&self, op: &Op) -> Option<State> {
        let same = |holds: bool| holds.then(|| self.clone());
        match *op {
            Op::Acquire(n, Ok(())) if n <= self.available() => self.with_held(self.held + n),
            Op::Acquire(_, Ok(())) => None,
            Op::Acquire(n, Err(Exhausted { available })) => {
                same(available == self.available() && available < n)
            }
            Op::AcquireUpTo(n, got) if got == n.min(self.available()) => {
                self.with_held(self.held + got)
            }
            Op::AcquireUpTo(..) => None,
            Op::Release(n) => self.with_held(self.held - n),
            Op::SetLimit(limit) => Some(State { limit, ..self.clone() }),
            Op::Available(free) => same(free == self.available()),
            Op::Acquired(held) => same(held == self.held),
        }
    }
}

fn call(budget: &Budget, op: &Op) -> Call<Op> {
    record(|| match *op {
        Op::Acquire(n, _) => Op::Acquire(n, budget.try_acquire(n)),
        Op::AcquireUpTo(n, _) => Op::AcquireUpTo(n, budget.try_acquire_up_to(n)),
        Op::Release(n) => {
            budget.release(n);
            Op::Release(n)
        }
        Op::SetLimit(limit) => {
            budget.set_limit(limit);
            Op::SetLimit(limit)
        }
        Op::Available(_) => Op::Available(budget.available()),
        Op::Acquired(_) => Op::Acquired(budget.acquired()),
    })
}

/// Makes a budget in per-CPU mode, with units in every CPU's lane.
fn percpu_budget() -> &'static Budget {
    // Leaked, because no other budget may have this address in the same execution.
    let budget: &Budget = Box::leak(Box::new(Budget::new(LIMIT)));
    for _ in 0..40 {
        budget.try_acquire(1).expect("units are available");
        budget.release(1);
    }
    for cpu in 0..CPUS {
        model::run_on(cpu);
        budget.try_acquire(1).expect("units are available");
        budget.release(1);
    }
    model::run_on(0);
    budget
}

/// Makes a thread's random calls; it releases only units that it holds.
fn calls(budget: &'static Budget, may_set_limit: bool) -> Vec<Call<Op>> {
    const AMOUNTS: [u64; 6] = [1, 1, 20, 120, 200, 399];
    let mut held = 0;
    let mut done = Vec::new();
    for _ in 0..2 + model::choose(4) {
        let n = AMOUNTS[model::choose(AMOUNTS.len())];
        let op = match model::choose(10) {
            0..=3 => Op::Acquire(n, Ok(())),
            4 => Op::AcquireUpTo(n, 0),
            5 => Op::Available(0),
            6 if may_set_limit => Op::SetLimit([100, LIMIT, 500][model::choose(3)]),
            6 => Op::Acquired(0),
            _ => Op::Release(n.min(held)),
        };
        let made = call(budget, &op);
        match made.op {
            Op::Acquire(n, Ok(())) | Op::AcquireUpTo(_, n) => held += n,
            Op::Release(n) => held -= n,
            _ => {}
        }
        done.push(made);
    }
    done
}

fn random_ops(may_set_limit: bool) {
    let budget = percpu_budget();
    let work = move |thread| {
        leave_lanes_if(thread == 3);
        calls(budget, may_set_limit)
    };
    let mut calls = on_threads(4, CPUS, work).concat();
    calls.push(call(budget, &Op::Acquired(0)));
    calls.push(call(budget, &Op::Available(0)));
    assert_linearizable(State { limit: LIMIT, held: 0 }, calls);
}

#[test]
fn random_ops_are_linearizable() {
    in_random_orders(4_000, || random_ops(false));
}

#[test]
fn random_ops_are_linearizable_with_limit_changes() {
    in_random_orders(4_000, || random_ops(true));
}

// Each thread waits for its units; all are served, however many units they want.
#[test]
fn waiters_are_all_served() {
    in_random_orders(2_000, || {
        let budget = percpu_budget();
        on_threads(4, CPUS, move |thread| {
            for n in [[300, 10], [200, 30], [390, 1], [399, 1]][thread] {
                budget.acquire(n);
                budget.release(n);
            }
        });
        assert_eq!(budget.available(), LIMIT);
    });
}

// One release serves several waiters, which keep their units.
#[test]
fn one_release_serves_several_waiters() {
    in_random_orders(2_000, || {
        let budget = percpu_budget();
        budget.try_acquire(LIMIT).expect("units are available");
        let threads = [1, 2, 0].map(|cpu| model::spawn(cpu, move || budget.acquire(10)));
        budget.release(30);
        threads.into_iter().for_each(model::Thread::join);
        assert_eq!(budget.available(), 0);
    });
}

// Some waiters time out: no unit is lost, and the waiters behind them are still served.
#[test]
fn timed_out_waiters_lose_nothing() {
    in_random_orders(2_000, || {
        let budget = percpu_budget();
        on_threads(4, CPUS, move |thread| {
            let (n, patient) = [(300, true), (390, false), (200, true), (399, false)][thread];
            let got = match patient {
                true => {
                    budget.acquire(n);
                    true
                }
                // The model has no clock, but other threads may run before this call times out.
                false => match budget.acquire_timeout(n, Duration::ZERO) {
                    Ok(()) => true,
                    Err(Exhausted { available }) => {
                        assert!(available < n, "refused {n} with {available} available");
                        false
                    }
                },
            };
            if got {
                budget.release(n);
            }
        });
        assert_eq!(budget.available(), LIMIT);
    });
}

// Between a waiter's two checks other threads restore per-CPU mode and release into their lanes.
#[test]
fn waiter_is_served_when_percpu_mode_returns() {
    in_random_orders(4_000, || {
        let budget = percpu_budget();
        budget.try_acquire(2).expect("units are available");
        let other = |cpu: usize| {
            model::spawn(cpu, move || {
                budget.available();
                let got = budget.try_acquire_up_to(1);
                budget.release(1);
                budget.release(got);
            })
        };
        let others = [1, 2].map(other);
        budget.acquire(LIMIT);
        others.into_iter().for_each(model::Thread::join);
        assert_eq!(budget.acquired(), LIMIT);
    });
}

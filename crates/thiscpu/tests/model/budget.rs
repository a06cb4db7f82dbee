//! Budgets under long random runs: every history is linearizable, and every refusal is right.

use std::time::Duration;

use thiscpu::Budget;
use thiscpu::TryAcquireError::{self, Exhausted};
use thiscpu::model;

use crate::history::{Call, Specification};
use crate::run::{CPUS, assert_linearizable, in_random_orders, leave_lanes_if, on_threads, record};

pub(crate) const LIMIT: u64 = 400;

#[derive(Clone, Debug)]
enum Op {
    Acquire(u64, Result<(), TryAcquireError>),
    AcquireUpTo(u64, u64),
    Release(u64),
    SetLimit(u64),
    Available(u64),
    Acquired(u64),
    Close,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    limit: u64,
    held: u64,
    is_closed: bool,
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
            Op::Acquire(_, Err(TryAcquireError::Closed)) => same(self.is_closed),
            Op::Acquire(..) if self.is_closed => None,
            Op::Acquire(n, Ok(())) if n <= self.available() => self.with_held(self.held + n),
            Op::Acquire(_, Ok(())) => None,
            Op::Acquire(n, Err(Exhausted { available })) => {
                same(available == self.available() && available < n)
            }
            Op::AcquireUpTo(_, got) if self.is_closed => same(got == 0),
            Op::AcquireUpTo(n, got) if got == n.min(self.available()) => {
                self.with_held(self.held + got)
            }
            Op::AcquireUpTo(..) => None,
            Op::Close => Some(State { is_closed: true, ..self.clone() }),
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
        Op::Close => {
            budget.close();
            Op::Close
        }
    })
}

/// Makes a budget in per-CPU mode, with units in every CPU's lane.
pub(crate) fn percpu_budget() -> &'static Budget {
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

/// What else the random calls may do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum May {
    Nothing,
    SetLimit,
    Close,
}

/// Makes a thread's random calls; it releases only units that it holds.
fn calls(budget: &'static Budget, may: May) -> Vec<Call<Op>> {
    const AMOUNTS: [u64; 6] = [1, 1, 20, 120, 200, 399];
    let mut held = 0;
    let mut done = Vec::new();
    for _ in 0..2 + model::choose(4) {
        let n = AMOUNTS[model::choose(AMOUNTS.len())];
        let op = match model::choose(10) {
            0..=3 => Op::Acquire(n, Ok(())),
            4 => Op::AcquireUpTo(n, 0),
            5 => Op::Available(0),
            6 if may == May::SetLimit => Op::SetLimit([100, LIMIT, 500][model::choose(3)]),
            6 if may == May::Close => Op::Close,
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

fn random_ops(may: May) {
    let budget = percpu_budget();
    let work = move |thread| {
        leave_lanes_if(thread == 3);
        calls(budget, may)
    };
    let mut calls = on_threads(4, CPUS, work).concat();
    calls.push(call(budget, &Op::Acquired(0)));
    calls.push(call(budget, &Op::Available(0)));
    assert_linearizable(State { limit: LIMIT, held: 0, is_closed: false }, calls);
}

#[test]
fn random_ops_are_linearizable() {
    in_random_orders(4_000, || random_ops(May::Nothing));
}

#[test]
fn random_ops_are_linearizable_with_limit_changes() {
    in_random_orders(4_000, || random_ops(May::SetLimit));
}

#[test]
fn random_ops_are_linearizable_with_close() {
    in_random_orders(4_000, || random_ops(May::Close));
}

// A thread releases units that it does not hold: each is found once all units are back.
#[test]
fn over_released_units_are_all_found() {
    in_random_orders(2_000, || {
        let budget = percpu_budget();
        let work = move |thread| {
            let calls = (0..1 + model::choose(3)).map(|_| [1, 20, 200, 500][model::choose(4)]);
            let wrong = |n| match thread {
                0 => {
                    budget.release(n);
                    n
                }
                _ => {
                    let got = budget.try_acquire_up_to(n);
                    budget.release(got);
                    0
                }
            };
            calls.map(wrong).sum::<u64>()
        };
        let released: u64 = on_threads(3, CPUS, work).into_iter().sum();
        assert_eq!((budget.available(), budget.acquired()), (LIMIT, 0));
        assert_eq!(budget.over_released(), released);
    });
}

// Each thread waits for its units; all are served, however many units they want.
#[test]
fn waiters_are_all_served() {
    in_random_orders(2_000, || {
        let budget = percpu_budget();
        on_threads(4, CPUS, move |thread| {
            for n in [[300, 10], [200, 30], [390, 1], [399, 1]][thread] {
                budget.acquire(n).expect("open");
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
        let threads =
            [1, 2, 0].map(|cpu| model::spawn(cpu, move || budget.acquire(10).expect("open")));
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
                    budget.acquire(n).expect("open");
                    true
                }
                // The model has no clock, but other threads may run before this call times out.
                false => match budget.acquire_timeout(n, Duration::ZERO) {
                    Ok(()) => true,
                    Err(refused) => {
                        assert!(refused.available() < n, "refused {n}: {refused}");
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
        budget.acquire(LIMIT).expect("open");
        others.into_iter().for_each(model::Thread::join);
        assert_eq!(budget.acquired(), LIMIT);
    });
}

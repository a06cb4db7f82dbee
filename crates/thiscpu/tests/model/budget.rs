//! Budgets under long random runs: every history has an order that explains it, and refusals are right.

use std::time::Duration;

use thiscpu::model::{self, Machine, Order, random};
use thiscpu::{Budget, Exhausted, Tier};

use crate::executions;
use crate::history::{Call, Specification, is_linearizable};

const CPUS: usize = 3;
const LIMIT: u64 = 400;

#[derive(Clone, Debug)]
enum Op {
    Acquire(u64, Result<(), Exhausted>),
    UpTo(u64, u64),
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
    fn free(&self) -> u64 {
        self.limit.saturating_sub(self.held)
    }

    fn holding(&self, held: u64) -> Option<State> {
        Some(State { held, ..self.clone() })
    }
}

impl Specification for State {
    type Op = Op;

    fn after(&self, op: &Op) -> Option<State> {
        let same = |holds: bool| holds.then(|| self.clone());
        match *op {
            Op::Acquire(n, Ok(())) if n <= self.free() => self.holding(self.held + n),
            Op::Acquire(_, Ok(())) => None,
            Op::Acquire(n, Err(Exhausted { available })) => {
                same(available == self.free() && available < n)
            }
            Op::UpTo(n, got) if got == n.min(self.free()) => self.holding(self.held + got),
            Op::UpTo(..) => None,
            Op::Release(n) => self.holding(self.held - n),
            Op::SetLimit(limit) => Some(State { limit, ..self.clone() }),
            Op::Available(free) => same(free == self.free()),
            Op::Acquired(held) => same(held == self.held),
        }
    }
}

fn call(budget: &Budget, op: &Op) -> Call<Op> {
    let began = model::tick();
    let op = match *op {
        Op::Acquire(n, _) => Op::Acquire(n, budget.try_acquire(n)),
        Op::UpTo(n, _) => Op::UpTo(n, budget.try_acquire_up_to(n)),
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
    };
    Call { began, ended: model::tick(), op }
}

/// Makes a budget that lanes hold units of.
fn spread() -> &'static Budget {
    // Leaked, because its address must not be used again in this execution.
    let budget: &Budget = Box::leak(Box::new(Budget::new(LIMIT)));
    for _ in 0..40 {
        budget.try_acquire(1).expect("there is room");
        budget.release(1);
    }
    for cpu in 0..CPUS {
        model::run_on(cpu);
        budget.try_acquire(1).expect("there is room");
        budget.release(1);
    }
    model::run_on(0);
    budget
}

/// A thread's calls: it releases only what it holds.
fn calls(budget: &'static Budget, may_set_limit: bool) -> Vec<Call<Op>> {
    const AMOUNTS: [u64; 6] = [1, 1, 20, 120, 200, 399];
    let mut held = 0;
    let mut done = Vec::new();
    for _ in 0..2 + model::choose(4) {
        let n = AMOUNTS[model::choose(AMOUNTS.len())];
        let op = match model::choose(10) {
            0..=3 => Op::Acquire(n, Ok(())),
            4 => Op::UpTo(n, 0),
            5 => Op::Available(0),
            6 if may_set_limit => Op::SetLimit([100, LIMIT, 500][model::choose(3)]),
            6 => Op::Acquired(0),
            _ => Op::Release(n.min(held)),
        };
        let made = call(budget, &op);
        match made.op {
            Op::Acquire(n, Ok(())) | Op::UpTo(_, n) => held += n,
            Op::Release(n) => held -= n,
            _ => {}
        }
        done.push(made);
    }
    done
}

fn in_each_tier(default: usize, test: fn()) {
    for tier in [Tier::RseqCpu, Tier::Atomic] {
        let machine = Machine { indices: (5, 7), ..Machine::new(CPUS, tier) };
        for order in [Order::Uniform, Order::FewChanges(3)] {
            random(machine, order, executions(default) / 4, test);
        }
    }
}

fn anything(may_set_limit: bool) {
    const THREADS: usize = 4;
    let budget = spread();
    let thread = |number: usize| {
        model::spawn(number % CPUS, move || {
            if number == 3 {
                model::leave_lanes();
            }
            calls(budget, may_set_limit)
        })
    };
    let threads: Vec<_> = (0..THREADS).map(thread).collect();
    let mut calls: Vec<_> = threads.into_iter().flat_map(model::Thread::join).collect();
    calls.push(call(budget, &Op::Acquired(0)));
    calls.push(call(budget, &Op::Available(0)));
    calls.sort_by_key(|call| call.began);
    assert!(is_linearizable(State { limit: LIMIT, held: 0 }, &calls), "{calls:#?}");
}

#[test]
fn random_ops_are_linearizable() {
    in_each_tier(4_000, || anything(false));
}

#[test]
fn random_ops_are_linearizable_with_limit_changes() {
    in_each_tier(4_000, || anything(true));
}

/// Each waits until its units are there; all are served, however much they want.
#[test]
fn waiters_are_all_served() {
    in_each_tier(2_000, || {
        let budget = spread();
        let thread = |number: usize| {
            model::spawn(number % CPUS, move || {
                for n in [[300, 10], [200, 30], [390, 1], [399, 1]][number] {
                    budget.acquire(n);
                    budget.release(n);
                }
            })
        };
        let threads: Vec<_> = (0..4).map(thread).collect();
        threads.into_iter().for_each(model::Thread::join);
        assert_eq!(budget.available(), LIMIT);
    });
}

/// One release is enough for several, who keep what they get.
#[test]
fn one_release_serves_several_waiters() {
    in_each_tier(2_000, || {
        let budget = spread();
        budget.try_acquire(LIMIT).expect("so many are free");
        let threads = [1, 2, 0].map(|cpu| model::spawn(cpu, move || budget.acquire(10)));
        budget.release(30);
        threads.into_iter().for_each(model::Thread::join);
        assert_eq!(budget.available(), 0);
    });
}

/// Some give up; nothing is lost with them, and nobody behind them is forgotten.
#[test]
fn timed_out_waiters_lose_nothing() {
    in_each_tier(2_000, || {
        let budget = spread();
        let thread = |number: usize| {
            model::spawn(number % CPUS, move || {
                let (n, patient) = [(300, true), (390, false), (200, true), (399, false)][number];
                let got = match patient {
                    true => {
                        budget.acquire(n);
                        true
                    }
                    // The model has no clock; but before this looks at it others may do anything.
                    false => match budget.acquire_timeout(n, Duration::ZERO) {
                        Ok(()) => true,
                        Err(Exhausted { available }) => {
                            assert!(available < n, "{available} were free, of {n} wanted");
                            false
                        }
                    },
                };
                if got {
                    budget.release(n);
                }
            })
        };
        let threads: Vec<_> = (0..4).map(thread).collect();
        threads.into_iter().for_each(model::Thread::join);
        assert_eq!(budget.available(), LIMIT);
    });
}

/// Between a waiter's two looks others make the budget loose again, and then release into their lanes.
#[test]
fn waiter_is_served_when_percpu_mode_returns() {
    in_each_tier(4_000, || {
        let budget = spread();
        budget.try_acquire(2).expect("so many are free");
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

//! Runs of a test: on which machines, in which orders, and how often.

use std::fmt::Debug;

use thiscpu::Tier;
use thiscpu::model::{self, Machine, Schedule, exhaustive, random};

use crate::history::{Call, Specification, is_linearizable};

/// The number of CPUs of most machines.
pub(crate) const CPUS: usize = 3;

/// Runs `test` in all orders with up to `preemptions` preemptions, with and without sections.
pub(crate) fn in_every_order(preemptions: usize, test: impl Fn() + Copy + Send + Sync + 'static) {
    let machines = [Tier::RseqCpu, Tier::Atomic].map(|tier| Machine::new(CPUS, tier));
    in_every_order_on(machines, preemptions, test);
}

/// Runs `test` on each machine in all orders with up to `preemptions` preemptions.
pub(crate) fn in_every_order_on(
    machines: impl IntoIterator<Item = Machine>,
    preemptions: usize,
    test: impl Fn() + Copy + Send + Sync + 'static,
) {
    for machine in machines {
        let orders = exhaustive(machine, preemptions, test);
        println!("{}: {orders} orders", machine.tier);
    }
}

/// Runs `test` in `executions` random orders, with and without sections.
pub(crate) fn in_random_orders(executions: usize, test: fn()) {
    // The kernel's indices may be sparse and large.
    let machine = |tier| Machine { indices: (5, 7), ..Machine::new(CPUS, tier) };
    let machines = [Tier::RseqCpu, Tier::Atomic].map(machine);
    in_random_orders_on(&machines, executions, move |_| test());
}

/// Runs `test` in `executions` random orders, which it divides between the machines.
///
/// `THISCPU_MODEL_RUNS` multiplies their number.
pub(crate) fn in_random_orders_on(
    machines: &[Machine],
    executions: usize,
    test: impl Fn(Machine) + Copy + Send + Sync + 'static,
) {
    let times = std::env::var("THISCPU_MODEL_RUNS").ok();
    let times = times.map_or(1, |times| times.parse().expect("THISCPU_MODEL_RUNS is a number"));
    let orders = [Schedule::Uniform, Schedule::Pct(3)];
    let each = executions * times / (machines.len() * orders.len());
    for &machine in machines {
        for order in orders {
            random(machine, order, each, move || test(machine));
        }
    }
}

/// Runs `work` on `threads` threads, which share `cpus` CPUs, and returns the results.
pub(crate) fn on_threads<R: Send + 'static>(
    threads: usize,
    cpus: usize,
    work: impl Fn(usize) -> R + Clone + Send + 'static,
) -> Vec<R> {
    let start = |number: usize| {
        let work = work.clone();
        model::spawn(number % cpus, move || work(number))
    };
    let threads: Vec<_> = (0..threads).map(start).collect();
    threads.into_iter().map(model::Thread::join).collect()
}

/// Records a call; `op` makes it and returns it with its result.
pub(crate) fn record<Op>(op: impl FnOnce() -> Op) -> Call<Op> {
    let began = model::tick();
    let op = op();
    Call { began, ended: model::tick(), op }
}

/// Asserts that a history that begins in the state `start` is linearizable.
pub(crate) fn assert_linearizable<S: Specification<Op: Debug> + Debug>(
    start: S,
    mut calls: Vec<Call<S::Op>>,
) {
    calls.sort_by_key(|call| call.began);
    assert!(is_linearizable(start.clone(), &calls), "from {start:?}: {calls:#?}");
}

/// Makes the calling thread one without a lane, if `condition` holds.
pub(crate) fn leave_lanes_if(condition: bool) {
    if condition {
        model::leave_lanes();
    }
}

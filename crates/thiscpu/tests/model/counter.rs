//! Counters under long random runs: every history is linearizable.

use thiscpu::model;
use thiscpu::{Counter, Counters};

use crate::counter_history::{Op, Value, any_op, call, percpu_counter, take_lanes};
use crate::run::{CPUS, assert_linearizable, in_random_orders, leave_lanes_if, on_threads};

/// Runs threads that make random calls on the counter that `make` returns; one has no lane.
fn random_ops(make: impl Fn() -> &'static Counter) {
    let counter = make();
    let start = counter.sum();
    let work = move |thread| {
        leave_lanes_if(thread == 3);
        let calls = 2 + model::choose(4);
        (0..calls).map(|_| call(counter, &any_op())).collect::<Vec<_>>()
    };
    let mut calls = on_threads(4, CPUS, work).concat();
    calls.push(call(counter, &Op::Sum(0)));
    calls.push(call(counter, &Op::Sum(0)));
    assert_linearizable(Value(start), calls);
}

#[test]
fn percpu_mode_is_linearizable() {
    in_random_orders(4_000, || random_ops(|| percpu_counter(2, CPUS)));
}

#[test]
fn large_windows_are_linearizable() {
    in_random_orders(2_000, || random_ops(|| percpu_counter(1 << 20, CPUS)));
}

#[test]
fn ops_are_linearizable_when_lanes_come_into_use() {
    in_random_orders(4_000, || random_ops(|| percpu_counter(2, 1)));
}

#[test]
fn new_counter_is_linearizable() {
    in_random_orders(1_000, || random_ops(|| Box::leak(Box::new(Counter::new()))));
}

// Only adds and sums, which programs call most.
#[test]
fn adds_and_sums_are_linearizable() {
    in_random_orders(4_000, || {
        let counter = percpu_counter(2, CPUS);
        let adder = |number: usize| {
            model::spawn(number, move || {
                let add = |n| call(counter, &Op::Add(n));
                [add(1), add(-1), add(2), add(-1)].to_vec()
            })
        };
        let summer = |number| {
            let ops = [Op::Sum(0), Op::SumAll(0), Op::Sum(0)];
            model::spawn(number, move || ops.iter().map(|op| call(counter, op)).collect())
        };
        let threads = [adder(0), adder(1), adder(2), summer(1), summer(2)];
        let mut calls: Vec<_> = threads.into_iter().flat_map(model::Thread::join).collect();
        calls.push(call(counter, &Op::Sum(0)));
        assert_linearizable(Value(0), calls);
    });
}

// Units move between two counters that share a gate: a snapshot counts each unit once.
#[test]
fn snapshots_see_each_moving_unit_once() {
    in_random_orders(2_000, || {
        const UNITS: i64 = 10;
        static COUNTERS: Counters<2> = Counters::new();
        let counters = &COUNTERS;
        take_lanes(counters, CPUS);
        counters.add(0, UNITS);
        let mover = |number: usize| {
            model::spawn(number, move || {
                for _ in 0..4 {
                    // Taken before it is given, so the total never exceeds `UNITS`.
                    counters.add(0, -1);
                    counters.add(1, 1);
                }
            })
        };
        let movers = [mover(0), mover(1)];
        let asker = model::spawn(2, move || {
            for _ in 0..4 {
                let total: i64 = counters.snapshot().iter().sum();
                assert!((UNITS - 2..=UNITS).contains(&total), "{total} of {UNITS} units");
            }
        });
        movers.into_iter().for_each(model::Thread::join);
        asker.join();
        assert_eq!(counters.snapshot(), [UNITS - 8, 8]);
    });
}

//! Counters under long random runs: every history has an order that explains it.

use thiscpu::model::{self, Machine, Order, random};
use thiscpu::{Counter, Counters, Tier};

use crate::counter_history::{Op, any, call, check, spread, take_lanes};
use crate::executions;

const CPUS: usize = 3;

/// Runs `test` in both kinds of tier, with both ways to choose steps.
fn in_each_tier(default: usize, test: fn()) {
    for tier in [Tier::RseqCpu, Tier::Atomic] {
        // Indices that are neither dense nor small, as the kernel's may be.
        let machine = Machine { indices: (5, 7), ..Machine::new(CPUS, tier) };
        for order in [Order::Uniform, Order::FewChanges(3)] {
            random(machine, order, executions(default) / 4, test);
        }
    }
}

/// Threads that do anything, on a counter that is made by `make`; one has no lane.
fn anything(make: impl Fn() -> &'static Counter) {
    const THREADS: usize = 4;
    let counter = make();
    let start = counter.sum();
    let thread = |number: usize| {
        model::spawn(number % CPUS, move || {
            if number == 3 {
                model::leave_lanes();
            }
            let calls = 2 + model::choose(4);
            (0..calls).map(|_| call(counter, &any())).collect::<Vec<_>>()
        })
    };
    let threads: Vec<_> = (0..THREADS).map(thread).collect();
    let mut calls: Vec<_> = threads.into_iter().flat_map(model::Thread::join).collect();
    calls.push(call(counter, &Op::Sum(0)));
    calls.push(call(counter, &Op::Sum(0)));
    check(start, calls);
}

#[test]
fn percpu_mode_is_linearizable() {
    in_each_tier(4_000, || anything(|| spread(2, CPUS)));
}

#[test]
fn large_windows_are_linearizable() {
    in_each_tier(2_000, || anything(|| spread(1 << 20, CPUS)));
}

#[test]
fn ops_are_linearizable_when_lanes_come_into_use() {
    in_each_tier(4_000, || anything(|| spread(2, 1)));
}

#[test]
fn new_counter_is_linearizable() {
    in_each_tier(1_000, || anything(|| Box::leak(Box::new(Counter::new()))));
}

/// Adds and sums alone, where most of the time is spent.
#[test]
fn adds_and_sums_are_linearizable() {
    in_each_tier(4_000, || {
        let counter = spread(2, CPUS);
        let adder = |number: usize| {
            model::spawn(number, move || {
                let add = |n| call(counter, &Op::Add(n));
                [add(1), add(-1), add(2), add(-1)].to_vec()
            })
        };
        let summer = |number| {
            let ops = [Op::Sum(0), Op::SumOfMany(0), Op::Sum(0)];
            model::spawn(number, move || ops.iter().map(|op| call(counter, op)).collect())
        };
        let threads = [adder(0), adder(1), adder(2), summer(1), summer(2)];
        let mut calls: Vec<_> = threads.into_iter().flat_map(model::Thread::join).collect();
        calls.push(call(counter, &Op::Sum(0)));
        check(0, calls);
    });
}

/// Units that move between two counters with one gate: a snapshot sees each once.
#[test]
fn snapshots_see_each_moving_unit_once() {
    in_each_tier(2_000, || {
        const UNITS: i64 = 10;
        static COUNTERS: Counters<2> = Counters::new();
        let counters = &COUNTERS;
        take_lanes(counters, CPUS);
        counters.add(0, UNITS);
        let mover = |number: usize| {
            model::spawn(number, move || {
                for _ in 0..4 {
                    // First taken, then given: the total is never above.
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

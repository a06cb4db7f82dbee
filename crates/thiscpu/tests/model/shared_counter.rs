//! Shared counters under long random runs: every history is linearizable.

use thiscpu::model::{self, SharedCounters};

use crate::counter_history::{Op, Value};
use crate::history::Call;
use crate::run::{CPUS, assert_linearizable, in_random_orders, on_threads, record};

type Counter = SharedCounters<1, CPUS>;

fn add(counter: &Counter, n: i64) -> Call<Op> {
    record(|| {
        counter.add(0, n);
        Op::Add(n)
    })
}

fn sum(counter: &Counter) -> Call<Op> {
    record(|| Op::Sum(counter.sum()[0]))
}

/// Runs threads that make random calls with these amounts.
fn random_ops(amounts: &'static [i64]) {
    // Leaked, because no other counter may have this address in the same execution.
    let counter: &Counter = Box::leak(Box::new(Counter::new()));
    let work = move |_| {
        let calls = 2 + model::choose(4);
        let one = |_| match model::choose(3) {
            0 => sum(counter),
            _ => add(counter, amounts[model::choose(amounts.len())]),
        };
        (0..calls).map(one).collect::<Vec<_>>()
    };
    let mut calls = on_threads(4, CPUS, work).concat();
    calls.push(sum(counter));
    calls.push(sum(counter));
    assert_linearizable(Value(0), calls);
}

// Sums of another counter end epochs, and leave the banks of this one as they are.
#[test]
fn sums_of_one_counter_leave_the_others_exact() {
    type Pair = SharedCounters<2, CPUS>;
    in_random_orders(6_000, || {
        let pair: &Pair = Box::leak(Box::new(Pair::new()));
        let work = move |_| {
            let mut calls = Vec::new();
            for _ in 0..2 + model::choose(4) {
                match model::choose(6) {
                    0 => calls.push(record(|| Op::Sum(pair.sum()[0]))),
                    1 => {
                        let mut found = None;
                        let call = record(|| {
                            found = pair.sum_one(0);
                            Op::Sum(found.unwrap_or(0))
                        });
                        calls.extend(found.map(|_| call));
                    }
                    2 | 3 => {
                        pair.sum_one(1);
                    }
                    _ => calls.push(record(|| {
                        let n = [1, 2, 1 << 19][model::choose(3)];
                        pair.add(0, n);
                        Op::Add(n)
                    })),
                }
            }
            calls
        };
        let mut calls = on_threads(4, CPUS, work).concat();
        calls.push(record(|| Op::Sum(pair.sum()[0])));
        assert_linearizable(Value(0), calls);
    });
}

#[test]
fn small_amounts_are_linearizable() {
    in_random_orders(4_000, || random_ops(&[1, -1, 2, -2]));
}

// Large amounts are saved at once, and small ones fill deltas that must be saved.
#[test]
fn large_amounts_are_linearizable() {
    in_random_orders(4_000, || random_ops(&[1, -1, 1 << 19, -(1 << 19), 1023, -1024]));
}

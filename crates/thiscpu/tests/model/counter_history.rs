//! Recorded calls on a counter, and the specification that must explain them.

use std::cmp::Ordering;

use thiscpu::{Bounds, Comparison, Counter, Counters, model, sum_all};

use crate::history::{Call, Specification};
use crate::run::record;

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Add(i64),
    Sum(i64),
    SumAll(i64),
    Set(i64),
    Take(i64),
    Compare(i64, Comparison),
    Bounds(Bounds),
    Read,
}

/// A counter's value, as the specification has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Value(pub(crate) i64);

impl Specification for Value {
    type Op = Op;

    fn after(&self, op: &Op) -> Option<Value> {
        let same = |holds: bool| holds.then(|| self.clone());
        match *op {
            Op::Add(n) => Some(Value(self.0.wrapping_add(n))),
            Op::Set(value) => Some(Value(value)),
            Op::Take(value) => (value == self.0).then_some(Value(0)),
            Op::Sum(value) | Op::SumAll(value) => same(value == self.0),
            Op::Compare(rhs, Comparison { ordering, exact }) => {
                let is_exact = exact.is_none_or(|exact| exact == self.0);
                same(is_exact && self.0.cmp(&rhs) == ordering)
            }
            Op::Bounds(Bounds { low, high, .. }) => same(low <= self.0 && self.0 <= high),
            // `read` returns an estimate without a guarantee.
            Op::Read => same(true),
        }
    }
}

/// Makes a call and records its result.
pub(crate) fn call(counter: &Counter, op: &Op) -> Call<Op> {
    record(|| match *op {
        Op::Add(n) => {
            counter.add(n);
            Op::Add(n)
        }
        Op::Set(value) => {
            counter.set(value);
            Op::Set(value)
        }
        Op::Sum(_) => Op::Sum(counter.sum()),
        Op::SumAll(_) => Op::SumAll(sum_all(&[counter])[0]),
        Op::Take(_) => Op::Take(counter.take()),
        Op::Compare(rhs, _) => Op::Compare(rhs, counter.compare(rhs)),
        Op::Bounds(_) => Op::Bounds(counter.bounds()),
        Op::Read => {
            counter.read();
            Op::Read
        }
    })
}

/// Amounts that fit a window, that leave it, and one too large for any window.
const AMOUNTS: [i64; 7] = [1, -1, 1, -1, 100, -150, 1 << 43];

/// Chooses a random call; results in it are placeholders.
pub(crate) fn any_op() -> Op {
    let amount = AMOUNTS[model::choose(AMOUNTS.len())];
    match model::choose(12) {
        0..=4 => Op::Add(amount),
        5 => Op::Sum(0),
        6 => Op::SumAll(0),
        7 => Op::Set(amount),
        8 => Op::Take(0),
        9 => Op::Compare(amount, Comparison { ordering: Ordering::Equal, exact: None }),
        10 => Op::Bounds(Bounds { low: 0, estimate: 0, high: 0 }),
        _ => Op::Read,
    }
}

/// Makes a counter of value 0 in per-CPU mode, with lanes on the first `cpus` CPUs.
pub(crate) fn percpu_counter(batch: u64, cpus: usize) -> &'static Counter {
    // Leaked, because no other counter may have this address in the same execution.
    let counter: &Counter = Box::leak(Box::new(Counter::with_batch(batch)));
    for _ in 0..20 {
        counter.add(1);
        counter.add(-1);
    }
    for cpu in 0..cpus {
        model::run_on(cpu);
        counter.add(1);
        counter.add(-1);
    }
    model::run_on(0);
    counter
}

/// Gives `counters` lanes on the first `cpus` CPUs; their values stay 0.
pub(crate) fn take_lanes<const N: usize>(counters: &Counters<N>, cpus: usize) {
    for cpu in 0..cpus {
        model::run_on(cpu);
        (0..N).for_each(|i| counters.add(i, 1));
        (0..N).for_each(|i| counters.add(i, -1));
    }
    model::run_on(0);
}

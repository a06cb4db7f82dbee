//! A counter under load: what an add costs, and whether a sum was ever true.
//!
//! To judge sums, each worker owns a few units and moves them: it adds 1 for the new place, then
//! takes 1 away for the old one. So at every instant the true value is at least the number of
//! units, and at most one more for each worker. Any other sum was never true.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use indicatif::HumanCount;
use thiscpu::Counter;

use super::screen::TICK;
use super::{Row, Scene, crew};

pub(super) const SCENE: Scene = Scene {
    title: "Counters: exact sums while CPUs add",
    page: "docs/design/counter.md",
    workload: "add,sum",
    run,
};

/// Shards of the usual counter: enough for machines of many CPUs.
const SHARDS: usize = 256;

/// Units that each worker owns.
const UNITS_EACH: usize = 16;

/// The most further turns if no naive sum was wrong.
const TURNS_MAX: u32 = 3;

/// A line of its own for each shard, so that threads seldom write to one at once.
#[repr(align(128))]
#[derive(Default)]
struct Shard(AtomicI64);

/// Counts of sums, and of those that were wrong.
#[derive(Default)]
struct Sums {
    taken: u64,
    wrong: u64,
    worst: u64,
}

impl Sums {
    fn record(&mut self, sum: i64, possible: RangeInclusive<i64>) {
        let error = (sum - sum.clamp(*possible.start(), *possible.end())).unsigned_abs();
        self.taken += 1;
        self.wrong += u64::from(error != 0);
        self.worst = self.worst.max(error);
    }

    fn text(&self) -> String {
        format!("{} of {}", HumanCount(self.wrong), HumanCount(self.taken))
    }
}

fn run(length: Duration) -> Result<Vec<Row>> {
    let (counter_ns, atomic_ns) = costs(length / 2)?;
    let (exact, sharded) = sums(length / 2)?;
    let (thiscpu, usual) = (exact.text(), sharded.text());
    Ok(vec![
        Row::of_times("an add, while all threads add", "one atomic", counter_ns, atomic_ns),
        Row { what: "wrong sums, while units move", usual_is: "shards", thiscpu, usual },
        Row::of_counts("the largest error of a sum", "shards", exact.worst, sharded.worst),
    ])
}

/// Nanoseconds of an add to a counter and to one atomic, by turns; the better turn of each.
fn costs(length: Duration) -> Result<(f64, f64)> {
    const TURNS: u32 = 2;
    let (counter, atomic) = (Counter::new(), AtomicI64::new(0));
    let turn = length / TURNS / 2;
    let (mut made, mut counter_ns, mut atomic_ns) = (0, f64::MAX, f64::MAX);
    for _ in 0..TURNS {
        let show = || format!("thiscpu: {}", HumanCount(counter.sum() as u64));
        let work = crew::run(turn, |_| || counter.inc(), show);
        made += work.operations;
        counter_ns = counter_ns.min(work.ns_each());
        // Relaxed: a counter orders nothing else.
        let add = || {
            atomic.fetch_add(1, Relaxed);
        };
        let show = || format!("one atomic: {}", HumanCount(atomic.load(Relaxed) as u64));
        let work = crew::run(turn, |_| add, show);
        atomic_ns = atomic_ns.min(work.ns_each());
    }
    let sum = counter.sum() as u64;
    ensure!(sum == made, "a counter lost adds: it has {sum} of {made}; please report this");
    Ok((counter_ns, atomic_ns))
}

/// Takes sums of both counters, one after the other, while units move.
fn sums(length: Duration) -> Result<(Sums, Sums)> {
    let counter = Counter::new();
    let exact = sums_of(length / 2, &|_, n| counter.add(n), &|| counter.sum());
    let mut turns = 0..TURNS_MAX;
    let naive = loop {
        // The usual way: a shard for each hash of a key, added up one after the other.
        let shards: [Shard; SHARDS] = std::array::from_fn(|_| Shard::default());
        // Relaxed, as counters are: it orders nothing else.
        let add = |shard: usize, n| {
            shards[shard].0.fetch_add(n, Relaxed);
        };
        let sum = || shards.iter().map(|shard| shard.0.load(Relaxed)).sum();
        let sums = sums_of(length / 2, &add, &sum);
        // Other programs may keep the threads from running at the same time.
        if sums.wrong > 0 || turns.next().is_none() {
            break sums;
        }
    };
    let wrong = exact.wrong;
    ensure!(wrong == 0, "{wrong} exact sums were wrong; please report this");
    Ok((exact, naive))
}

/// Takes sums of one counter while units move between its shards, if it has any.
fn sums_of(length: Duration, add: &(dyn Fn(usize, i64) + Sync), sum: &dyn Fn() -> i64) -> Sums {
    let units = (crew::threads() * UNITS_EACH) as i64;
    add(0, units);
    let mut sums = Sums::default();
    let prepare = |thread: usize| {
        // All units begin in shard 0.
        let (mut shards, mut next, mut random) = ([0; UNITS_EACH], 0, crew::random(thread));
        move || {
            next = (next + 1) % UNITS_EACH;
            let new = random() as usize % SHARDS;
            add(new, 1);
            add(std::mem::replace(&mut shards[next], new), -1);
        }
    };
    let look = || {
        let begun = Instant::now();
        while begun.elapsed() < TICK / 2 {
            sums.record(sum(), units..=units + crew::threads() as i64);
        }
        format!("wrong sums: {}", sums.text())
    };
    crew::run(length, prepare, look);
    sums
}

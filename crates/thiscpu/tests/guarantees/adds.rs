//! `Counter::add`: no add is lost, on any number of threads and CPUs.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use crate::common::{
    Random, Scenario, TIERS, TIERS_AND_SANDBOXES, WITH_SECTIONS, assert_bounds_contain,
    leave_lanes_if, pin, scale, scenario, together, together_while, wrapping_sum,
};
use thiscpu::{Counter, Counters};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(adds::are_all_counted, TIERS_AND_SANDBOXES),
    scenario!(adds::are_all_counted_while_others_read, TIERS),
    scenario!(adds::are_all_counted_in_new_counters, TIERS),
    scenario!(adds::are_all_counted_when_threads_move, TIERS),
    scenario!(adds::are_all_counted_without_lanes, WITH_SECTIONS),
    scenario!(adds::are_all_counted_in_several_counters, TIERS),
    scenario!(adds::wrap_on_overflow, TIERS),
];

const THREADS: usize = 64;

static BATCHES: [Counter; 5] = [
    Counter::new(),
    Counter::with_batch(0),
    Counter::with_batch(2),
    Counter::with_batch(64),
    Counter::with_batch(u64::MAX),
];

/// Makes `adds` random adds and returns their wrapping sum.
fn add_mixed(counter: &Counter, random: &mut Random, adds: usize) -> i64 {
    wrapping_sum((0..adds).map(|_| match random.below(3) {
        0 => {
            counter.inc();
            1
        }
        1 => {
            counter.dec();
            -1
        }
        _ => {
            let n = random.amount();
            counter.add(n);
            n
        }
    }))
}

/// Asserts that all reads of an idle counter agree on `value`.
fn assert_settled(counter: &Counter, value: i64) {
    assert_eq!(counter.sum(), value);
    let bounds = assert_bounds_contain(counter, value);
    assert_eq!(counter.read(), bounds.estimate);
    assert_eq!(counter.compare(value).ordering, std::cmp::Ordering::Equal);
    for near in [value.wrapping_sub(1), value.wrapping_add(1)] {
        let compared = counter.compare(near);
        assert_eq!(compared.ordering, value.cmp(&near), "{value} and {near}");
        assert!(compared.exact.is_none_or(|exact| exact == value), "{value}: {compared:?}");
    }
}

fn are_all_counted() {
    let sums = together(THREADS, |thread| {
        leave_lanes_if(thread % 16 == 5);
        let mut random = Random::new(thread as u64);
        let adds = scale::rounds(1500) as usize;
        BATCHES.each_ref().map(|counter| add_mixed(counter, &mut random, adds))
    });
    for (number, counter) in BATCHES.iter().enumerate() {
        assert_settled(counter, wrapping_sum(sums.iter().map(|sums| sums[number])));
    }
}

// Sums flip banks, and comparisons change modes, during the adds.
fn are_all_counted_while_others_read() {
    let left = AtomicUsize::new(16);
    let sums = together_while(
        16,
        |thread| {
            leave_lanes_if(thread % 4 == 3);
            let mut random = Random::new(thread as u64);
            let sums = BATCHES.each_ref().map(|counter| add_mixed(counter, &mut random, 4000));
            left.fetch_sub(1, SeqCst);
            sums
        },
        || {
            let mut random = Random::new(100);
            while left.load(SeqCst) > 0 {
                let counter = &BATCHES[random.below(5) as usize];
                match random.below(4) {
                    0 => drop(counter.compare(random.amount())),
                    1 => drop(counter.bounds()),
                    _ => drop(counter.sum()),
                }
            }
        },
    );
    for (number, counter) in BATCHES.iter().enumerate() {
        assert_settled(counter, wrapping_sum(sums.iter().map(|sums| sums[number])));
    }
}

// Each counter changes from shared to per-CPU mode while threads make its first adds.
fn are_all_counted_in_new_counters() {
    for round in 0..150 {
        let counter = Counter::new();
        let sums = together(3, |thread| {
            let mut random = Random::new(round * 3 + thread as u64);
            let adds = 10 + random.below(60) as usize;
            add_mixed(&counter, &mut random, adds)
        });
        assert_settled(&counter, wrapping_sum(sums));
    }
}

// Another thread moves the adders from CPU to CPU at random moments.
fn are_all_counted_when_threads_move() {
    static COUNTER: Counter = Counter::new();
    const ADDERS: usize = 4;
    let tids: [AtomicUsize; ADDERS] = Default::default();
    let over = AtomicBool::new(false);
    let sums = together_while(
        ADDERS,
        |thread| {
            tids[thread].store(pin::tid() as usize, SeqCst);
            let mut random = Random::new(thread as u64);
            let mut sum = 0i64;
            while !over.load(SeqCst) {
                sum = sum.wrapping_add(add_mixed(&COUNTER, &mut random, 200));
            }
            sum
        },
        || {
            let mut random = Random::new(100);
            for round in 0..scale::rounds(3000) {
                let tid = tids[random.below(ADDERS as u64) as usize].load(SeqCst);
                let cpu = pin::cpus()[random.below(pin::cpus().len() as u64) as usize];
                if tid != 0 {
                    let one = [cpu];
                    pin::set_affinity(tid as i32, if round % 5 == 0 { pin::cpus() } else { &one });
                }
                if round % 16 == 0 {
                    COUNTER.sum();
                }
            }
            over.store(true, SeqCst);
        },
    );
    assert_settled(&COUNTER, wrapping_sum(sums));
}

// An unregistered thread's `mm_cid` reads 0, which is another thread's lane.
fn are_all_counted_without_lanes() {
    static COUNTER: Counter = Counter::new();
    const ADDS: i64 = 400_000;
    let words = thiscpu::PerCpu::<u64>::new();
    together(3, |thread| {
        leave_lanes_if(thread < 2);
        for _ in 0..ADDS {
            COUNTER.inc();
            words.add(1);
        }
    });
    assert_settled(&COUNTER, 3 * ADDS);
    assert_eq!(words.lanes().sum::<u64>(), 3 * ADDS as u64);
}

fn are_all_counted_in_several_counters() {
    static COUNTERS: Counters<3> = Counters::new();
    let left = AtomicUsize::new(8);
    let sums = together_while(
        8,
        |thread| {
            leave_lanes_if(thread % 4 == 3);
            let mut random = Random::new(thread as u64);
            let mut sums = [0i64; 3];
            for _ in 0..20_000 {
                let (i, n) = (random.below(3) as usize, random.amount());
                COUNTERS.add(i, n);
                sums[i] = sums[i].wrapping_add(n);
            }
            left.fetch_sub(1, SeqCst);
            sums
        },
        || {
            while left.load(SeqCst) > 0 {
                COUNTERS.snapshot();
            }
        },
    );
    let expected = [0, 1, 2].map(|i| wrapping_sum(sums.iter().map(|sums| sums[i])));
    assert_eq!(COUNTERS.snapshot(), expected);
    assert_eq!([0, 1, 2].map(|i| COUNTERS.sum(i)), expected);
}

fn wrap_on_overflow() {
    for counter in &BATCHES {
        for _ in 0..600 {
            counter.add(1);
        }
        counter.add(i64::MAX);
        assert_settled(counter, i64::MIN + 599);
        counter.add(i64::MIN);
        assert_settled(counter, 599);
    }
}

//! Every contender's guarantee: once all adders are done, each add is counted exactly once.

use std::{cmp::Ordering, thread};

use super::Contender;

const THREADS: i64 = 4;
const ADDS: i64 = 20_000;

/// Amounts on both sides of every batch, of both signs, that do not cancel out.
const AMOUNTS: [i64; 8] = [1, -1, 7, -31, 32, 1_000, -32_768, 32_769];

fn add_from_threads<C: Contender>(counter: &C, sums_meanwhile: bool) -> i64 {
    let rounds = ADDS / AMOUNTS.len() as i64;
    thread::scope(|scope| {
        for index in 0..THREADS {
            scope.spawn(move || {
                if index % 2 == 1 {
                    C::leave_lanes();
                }
                for n in (0..rounds).flat_map(|_| AMOUNTS) {
                    counter.add(n);
                }
            });
        }
        if sums_meanwhile {
            scope.spawn(|| (0..1_000).map(|_| counter.sum()).for_each(|_| ()));
        }
    });
    THREADS * rounds * AMOUNTS.iter().sum::<i64>()
}

fn counts_exactly<C: Contender>() {
    for sums_meanwhile in [false, true] {
        let counter = C::try_new().unwrap();
        let added = add_from_threads(&counter, sums_meanwhile);
        assert_eq!(counter.sum(), added, "while others sum: {sums_meanwhile}");
    }
}

fn compares_exactly_when_idle<C: Contender>() {
    let counter = C::try_new().unwrap();
    let added = add_from_threads(&counter, false);
    for distance in [0, 1, 31, 32, 33, 63, 64, 65, 1_000, 1_000_000] {
        assert_eq!(counter.compare(added - distance), distance.cmp(&0), "{distance} below");
        assert_eq!(counter.compare(added + distance), 0.cmp(&distance), "{distance} above");
    }
    counter.add(1 - added);
    assert_eq!(counter.compare(1), Ordering::Equal);
}

test_all!(counts_exactly compares_exactly_when_idle);

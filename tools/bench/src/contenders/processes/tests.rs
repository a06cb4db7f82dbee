//! Every contender's guarantee: once all processes are done, each add is counted exactly once.

use thiscpu_test_support::child;

use super::Contender;

const PROCESSES: usize = 3;
const ADDS: usize = 2_000;

fn counts_exactly<C: Contender>() {
    let counter = C::try_new().unwrap();
    let add = |process| (0..ADDS).for_each(|_| counter.add(process));
    let children: Vec<i32> = (0..PROCESSES)
        .map(|process| {
            child::start(|| {
                add(process);
                // A sum that nobody shares has the adds of this process.
                assert!(counter.sum() > 0 || counter.own() == ADDS as i64);
            })
        })
        .collect();
    for child in children {
        assert_eq!(child::wait(child), 0);
    }
    let shared = (PROCESSES * ADDS) as i64;
    assert!(counter.sum() == shared || (counter.sum() == 0 && counter.own() == 0));
}

test_all!(counts_exactly);

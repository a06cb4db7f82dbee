//! Series of a shared registry, inserted and removed in every order of steps, with weak memory.
//!
//! Another process is another thread here. The orders in which a thread takes its last steps after
//! all others have ended include every death, except that memory is given back at last.

use thiscpu::model::{self, SharedNames};

use crate::run::in_every_order_on;

const LANES: usize = 1;

static NAMES: SharedNames<4, LANES> = SharedNames::new();

fn in_every_order(preemptions: usize, test: impl Fn() + Copy + Send + Sync + 'static) {
    let machine = model::Machine::new(2, thiscpu::Tier::Atomic);
    in_every_order_on([machine], preemptions, test);
}

fn add(name: u64, n: i64) {
    NAMES.add(name, n).expect("room");
}

fn value(name: u64) -> i64 {
    NAMES.sum([name])[0].unwrap_or(0)
}

#[test]
fn racing_inserts_make_one_series() {
    in_every_order(3, || {
        let other = model::spawn(1, || add(7, 1));
        add(7, 2);
        add(8, 4);
        other.join();
        assert_eq!(NAMES.sum([7, 8, 9]), [Some(3), Some(4), None]);
    });
}

#[test]
fn late_add_revives_series_or_is_in_its_last_value() {
    in_every_order(3, || {
        add(7, 1);
        let adder = model::spawn(1, || {
            add(7, 2);
            add(7, 100);
        });
        let last = NAMES.remove(7).expect("it exists");
        adder.join();
        assert_eq!(last + value(7), 103);
    });
}

#[test]
fn late_add_does_not_reach_series_that_has_the_memory_now() {
    in_every_order(3, || {
        add(7, 1);
        let adder = model::spawn(1, || add(7, 2));
        let last = NAMES.remove(7).expect("it exists");
        add(8, 4);
        assert_eq!(value(8), 4);
        adder.join();
        assert_eq!((last + value(7), value(8)), (3, 4));
    });
}

#[test]
fn series_is_removed_once() {
    in_every_order(3, || {
        add(7, 1);
        add(8, 2);
        let other = model::spawn(1, || NAMES.remove(7));
        let own = NAMES.remove(7);
        let last = [own, other.join()];
        assert!(last == [Some(1), None] || last == [None, Some(1)], "{last:?}");
        add(9, 4);
        assert_eq!(NAMES.sum([7, 8, 9]), [None, Some(2), Some(4)]);
    });
}

/// Makes the chain 6, 9, 8, 7; other series can have the memory of those that are removed.
fn prepare_chain() {
    [7, 8, 9, 6].map(|name| add(name, 1));
}

// The nodes are neighbors, so each remover changes the link that the other one freezes.
#[test]
fn neighbors_are_removed_at_once() {
    in_every_order(3, || {
        prepare_chain();
        let other = model::spawn(1, || {
            let last = NAMES.remove(8);
            // In another chain, so this call does not unlink 9.
            add(100, 1);
            last
        });
        assert_eq!(NAMES.remove(9), Some(1));
        assert_eq!(other.join(), Some(1));
        assert_eq!(NAMES.sum([7, 8, 9, 6, 100]), [Some(1), None, None, Some(1), Some(1)]);
    });
}

// The one search comes to the node 9 before 8 is removed, and leaves it after.
#[test]
fn search_skips_removed_node_by_its_last_link() {
    in_every_order(3, || {
        prepare_chain();
        let other = model::spawn(1, || {
            assert_eq!(NAMES.remove(8), Some(1));
            add(10, 1);
            assert_eq!(NAMES.remove(9), Some(1));
        });
        assert_eq!(NAMES.sum([7]), [Some(1)]);
        other.join();
        assert_eq!(NAMES.sum([7, 8, 9, 6, 10]), [Some(1), None, None, Some(1), Some(1)]);
    });
}

#[test]
fn sum_takes_each_series_of_one_instant() {
    in_every_order(3, || {
        add(7, 1);
        add(8, -1);
        let other = model::spawn(1, || {
            add(7, 1);
            add(8, -1);
            NAMES.remove(7)
        });
        match NAMES.sum([7, 8]) {
            [Some(seven), Some(eight)] => assert!([0, 1].contains(&(seven + eight))),
            [None, Some(eight)] => assert!(eight == -1 || eight == -2, "{eight}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(other.join(), Some(2));
    });
}

fn assert_token() {
    let sums = NAMES.sum([7, 8]).map(|sum| sum.expect("both exist"));
    assert!([0, 1].contains(&(sums[0] + sums[1])), "{sums:?}");
}

// The banks take turns. An adder that has loaded the epoch before the first sum comes back while
// the second one is between its two looks at that bank.
#[test]
fn consecutive_sums_see_moving_token_once() {
    for is_sealed in [false, true] {
        in_every_order(3, move || {
            for _ in 0..2 {
                add(7, 1);
                add(8, -1);
                NAMES.sum([7, 8]);
            }
            if !is_sealed {
                add(7, 1);
                add(8, -1);
            }
            let summer = model::spawn(1, || {
                assert_token();
                assert_token();
            });
            add(7, 1);
            add(8, -1);
            summer.join();
            assert_token();
        });
    }
}

#[test]
fn concurrent_sums_see_moving_token_once() {
    in_every_order(2, move || {
        add(7, 1);
        add(8, -1);
        NAMES.sum([7, 8]);
        let summers = [0, 1].map(|_| model::spawn(1, assert_token));
        add(7, 1);
        add(8, -1);
        summers.map(model::Thread::join);
        assert_token();
    });
}

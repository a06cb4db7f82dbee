//! `Counter::sum`, `Counters::snapshot` and `sum_all`: a sum is exact at one instant of its call.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::SeqCst};

use crate::common::pin::two_cpus;
use crate::common::{
    Adder, DecrementOnDrop, MIXED, PINNED, Scenario, TIERS, TIERS_AND_SANDBOXES, Tally,
    leave_lanes_if, pass, pass_while_asking, scale, scenario, to_percpu_mode, together,
};
use thiscpu::{Counter, Counters, Summable, sum_all};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(sums::see_token_between_lanes_once, TIERS).needs(two_cpus),
    scenario!(sums::see_token_with_and_without_lanes_once, TIERS_AND_SANDBOXES),
    scenario!(sums::see_large_token_once, TIERS),
    scenario!(sums::snapshot_is_one_instant, TIERS),
    scenario!(sums::snapshot_is_one_instant_without_lanes, TIERS),
    scenario!(sums::wide_snapshots_are_exact, TIERS),
    scenario!(sums::sum_all_sees_token_once, TIERS_AND_SANDBOXES),
    scenario!(sums::are_linearizable, TIERS_AND_SANDBOXES),
];

/// Checks all sums of `N` counters, each of which has a value of its own.
fn check_wide<const N: usize>(counters: &Counters<N>) {
    let mut values = Box::new([0; N]);
    for round in 1..=3 {
        together(4, |thread| {
            leave_lanes_if(thread == 3);
            (0..N).for_each(|index| counters.add(index, 1000 * index as i64 + thread as i64));
        });
        let expected = |index: usize| round * (4000 * index as i64 + 6);
        counters.snapshot_into(&mut values);
        (0..N).for_each(|index| assert_eq!(values[index], expected(index), "{index} of {N}"));
        // Each sum flips all counters, so a wide group has fewer sums. Their step is one more than
        // a block, so 4096 counters have a sum at each place in a block.
        for index in (0..N).step_by(if N > 200 { 65 } else { 1 }) {
            assert_eq!(counters.sum(index), expected(index), "{index} of {N}");
        }
        assert_eq!(counters.snapshot(), *values);
        assert_eq!(sum_all(&[counters]), *values);
    }
}

// Flips add counters up in blocks: these are numbers of counters around one block, and several.
fn wide_snapshots_are_exact() {
    static WIDEST: Counters<4096> = Counters::new();
    check_wide(&Counters::<2>::new());
    check_wide(&Counters::<63>::new());
    check_wide(&Counters::<64>::new());
    check_wide(&Counters::<65>::new());
    check_wide(&Counters::<200>::new());
    check_wide(&WIDEST);
}

const SUMS: u64 = 1500;
const PASSES: u64 = 1000;

fn token_sums(counter: &Counter, adders: &[Adder], amount: i64) {
    token_sums_by(counter, adders, amount, &Counter::sum);
}

fn token_sums_by(
    counter: &Counter,
    adders: &[Adder],
    amount: i64,
    sum_of: &(dyn Fn(&Counter) -> i64 + Sync),
) {
    pass_while_asking(counter, adders, amount, |token, asker| {
        let mut asked = 0;
        while token.keep_asking(&mut asked, SUMS, PASSES) {
            let sum = sum_of(counter);
            assert!(sum == 0 || sum == amount, "asker {asker}: {sum}");
        }
    });
    let sum = sum_of(counter);
    assert!(sum == 0 || sum == amount, "{sum}");
}

fn see_token_between_lanes_once() {
    static COUNTER: Counter = Counter::new();
    token_sums(&COUNTER, &PINNED, 1);
}

fn see_token_with_and_without_lanes_once() {
    static COUNTER: Counter = Counter::with_batch(64);
    token_sums(&COUNTER, &MIXED, 1);
    static LANELESS: Counter = Counter::new();
    token_sums(&LANELESS, &[Adder::Laneless, Adder::On(0)], 1);
}

// One amount is larger than a batch, the other larger than any window.
fn see_large_token_once() {
    for amount in [32_768, 1 << 50] {
        token_sums(&Counter::new(), &MIXED, amount);
    }
}

/// Takes snapshots while one thread adds to the first counter and then another to the second.
///
/// So the difference of the counters is 0 or 1 at any instant.
fn snapshots(adders: &[Adder]) {
    let counters = Counters::<2>::new();
    pass(
        adders,
        |_, sign| counters.add(usize::from(sign < 0), 1),
        |token| {
            let mut asked = 0;
            while token.keep_asking(&mut asked, SUMS, PASSES) {
                let [ahead, behind] = counters.snapshot();
                assert!(matches!(ahead - behind, 0 | 1), "{ahead} {behind}");
            }
        },
    );
}

fn snapshot_is_one_instant() {
    snapshots(&PINNED);
}

fn snapshot_is_one_instant_without_lanes() {
    snapshots(&MIXED);
    snapshots(&[Adder::Laneless, Adder::Laneless]);
}

// Two threads sum a counter at once: alone, among others, and twice in one call.
fn sum_all_sees_token_once() {
    static TOKEN: Counter = Counter::new();
    static UNUSED: Counter = Counter::new();
    static FIXED: Counters<3> = Counters::new();
    (0..3).for_each(|i| FIXED.add(i, 10 + i as i64));
    let asked = AtomicUsize::new(0);
    token_sums_by(&TOKEN, &MIXED, 1, &|token| {
        let number = asked.fetch_add(1, SeqCst);
        let all: [&dyn Summable; 4] = [&UNUSED, &FIXED, token, token];
        match number % 4 {
            0 => token.sum(),
            1 => {
                let sums = sum_all(&all);
                assert_eq!(sums[..4], [0, 10, 11, 12]);
                assert!(matches!(sums[5], 0 | 1), "{sums:?}");
                sums[4]
            }
            _ => {
                let sums = sum_all(&all[..3]);
                assert_eq!(sums[..4], [0, 10, 11, 12]);
                sums[4]
            }
        }
    });
    assert!(sum_all(&[]).is_empty());
}

// Many threads sum at once and share flips.
//
// Each sum lies between the adds that finished before it and those that began before its end, and
// is no older than a sum that another thread already has.
fn are_linearizable() {
    const ADDERS: usize = 4;
    const ASKERS: usize = 4;
    static COUNTER: Counter = Counter::new();
    static OTHER: Counter = Counter::new();
    to_percpu_mode(&COUNTER);
    to_percpu_mode(&OTHER);
    let tally = Tally::new(ADDERS);
    let known = AtomicI64::new(0);
    let askers = AtomicUsize::new(ASKERS);
    let add = |thread: usize| {
        leave_lanes_if(thread == 3);
        let mut n = 0;
        while askers.load(SeqCst) > 0 {
            n = n % 40 + 1;
            tally.add(thread, n, || COUNTER.add(n as i64));
        }
    };
    let ask = || {
        for round in 0..scale::rounds(1000) {
            let before = known.load(SeqCst);
            // The second flip of `COUNTER` begins before the first has ended.
            let all: [&dyn Summable; 3] = [&OTHER, &COUNTER, &COUNTER];
            let sum = || if round % 2 == 0 { COUNTER.sum() } else { sum_all(&all)[1] };
            let (done, sum, begun) = tally.around(sum);
            assert!(done <= sum && sum <= begun, "{done} <= {sum} <= {begun}");
            assert!(before <= sum, "{sum} after {before}");
            known.fetch_max(sum, SeqCst);
        }
    };
    let work = |thread: usize| {
        if thread < ADDERS {
            return add(thread);
        }
        let _decrement = DecrementOnDrop(&askers);
        ask();
    };
    together(ADDERS + ASKERS, work);
    let (done, sum, _) = tally.around(|| COUNTER.sum());
    assert_eq!(sum, done);
}

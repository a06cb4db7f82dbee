//! `Counter::compare`, `set` and `take`.
//!
//! A comparison is never wrong; `set` and `take` change the value at one instant and lose nothing.

use std::cmp::Ordering;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::SeqCst};

use thiscpu::{Comparison, Counter};

use crate::common::{
    Adder, DecrementOnDrop, MIXED, PINNED, Random, Scenario, TIERS, TIERS_AND_SANDBOXES, Tally,
    leave_lanes_if, pass_while_asking, scale, scenario, to_percpu_mode, together, wrapping_sum,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(compare_set_take::compare_is_right_about_moving_token, TIERS),
    scenario!(compare_set_take::compare_is_right_during_adds, TIERS_AND_SANDBOXES),
    scenario!(compare_set_take::compare_is_right_near_limit, TIERS),
    scenario!(compare_set_take::take_loses_nothing, TIERS_AND_SANDBOXES),
    scenario!(compare_set_take::set_is_one_instant, TIERS),
    scenario!(compare_set_take::mixed_ops_lose_nothing, TIERS),
];

/// Asserts that a comparison agrees with the exact value that it returns.
fn assert_consistent(compared: Comparison, rhs: i64) {
    if let Some(exact) = compared.exact {
        assert_eq!(compared.ordering, exact.cmp(&rhs), "{compared:?} with {rhs}");
    }
}

/// Compares while a token of `amount` moves: the value is 0 or `amount`.
///
/// So the ordering is known for numbers below and above, and partly at both values.
fn token_compares(counter: &Counter, adders: &[Adder], amount: i64) {
    pass_while_asking(counter, adders, amount, |token, asker| {
        let mut random = Random::new(asker as u64);
        let mut asked = 0;
        while token.keep_asking(&mut asked, 2500, 1000) {
            let distance = random.below(5000) as i64;
            let (rhs, wrong) = match random.below(if asker == 0 { 6 } else { 2 }) {
                0 => (-1 - distance, [Ordering::Less, Ordering::Equal]),
                1 => (amount + 1 + distance, [Ordering::Greater, Ordering::Equal]),
                2 => (0, [Ordering::Less; 2]),
                3 => (amount, [Ordering::Greater; 2]),
                _ => {
                    // Returns the counter to per-CPU mode, which comparisons have ended.
                    let sum = counter.sum();
                    assert!(sum == 0 || sum == amount, "{sum}");
                    continue;
                }
            };
            let compared = counter.compare(rhs);
            assert!(!wrong.contains(&compared.ordering), "{compared:?} with {rhs}");
            assert!(compared.exact.is_none_or(|exact| exact == 0 || exact == amount));
            assert_consistent(compared, rhs);
        }
    });
}

fn compare_is_right_about_moving_token() {
    token_compares(&Counter::new(), &PINNED, 1);
    token_compares(&Counter::with_batch(64), &MIXED, 1);
    token_compares(&Counter::new(), &MIXED, 32_768);
}

// The ordering is right for some value that the counter had during the call.
fn compare_is_right_during_adds() {
    const ADDERS: usize = 4;
    for counter in [Counter::new(), Counter::with_batch(64)] {
        to_percpu_mode(&counter);
        let (tally, asking) = (Tally::new(ADDERS), AtomicUsize::new(2));
        let add = |thread: usize| {
            leave_lanes_if(thread == 3);
            while asking.load(SeqCst) > 0 {
                tally.add(thread, 3, || counter.add(3));
            }
        };
        let ask = |random: &mut Random| {
            for _ in 0..scale::rounds(2000) {
                let (now, _, _) = tally.around(|| ());
                let rhs = now + [0, 3000, -3000, 100_000][random.below(4) as usize];
                let (done, compared, begun) = tally.around(|| counter.compare(rhs));
                let possible = match compared.ordering {
                    Ordering::Less => done < rhs,
                    Ordering::Equal => done <= rhs && rhs <= begun,
                    Ordering::Greater => begun > rhs,
                };
                assert!(possible, "{compared:?} with {rhs}, within {done}..{begun}");
                assert!(compared.exact.is_none_or(|exact| done <= exact && exact <= begun));
                assert_consistent(compared, rhs);
            }
        };
        let work = |thread: usize| {
            if thread < ADDERS {
                return add(thread);
            }
            let _decrement = DecrementOnDrop(&asking);
            ask(&mut Random::new(thread as u64));
        };
        together(ADDERS + 2, work);
    }
}

// Each thread adds 1, compares the counter with numbers near its value, and subtracts 1.
fn compare_is_right_near_limit() {
    const THREADS: i64 = 8;
    static COUNTER: Counter = Counter::new();
    const BASE: i64 = 5000;
    COUNTER.set(BASE);
    together(THREADS as usize, |thread| {
        for round in 0..scale::rounds(4000) {
            COUNTER.inc();
            // This thread's 1 is still included, so the value is above the base.
            assert_eq!(COUNTER.compare(BASE).ordering, Ordering::Greater);
            assert_eq!(COUNTER.compare(BASE + THREADS + 1).ordering, Ordering::Less);
            COUNTER.dec();
            if thread == 0 && round % 400 == 0 {
                to_percpu_mode(&COUNTER);
            }
        }
    });
    assert_eq!(COUNTER.sum(), BASE);
}

// Several threads take units that others add: each unit is taken once, or is left at the end.
fn take_loses_nothing() {
    for counter in [Counter::new(), Counter::with_batch(2), Counter::with_batch(0)] {
        let adding = AtomicUsize::new(4);
        let work = |thread: usize| {
            let mut random = Random::new(thread as u64);
            if thread >= 4 {
                let mut taken = 0i64;
                while adding.load(SeqCst) > 0 {
                    let part = counter.take();
                    assert!(part >= 0, "took {part}, though nothing is subtracted");
                    taken += part;
                    (0..random.below(2000)).for_each(|_| std::hint::spin_loop());
                }
                return -taken;
            }
            leave_lanes_if(thread == 3);
            let _decrement = DecrementOnDrop(&adding);
            wrapping_sum((0..scale::rounds(30_000)).map(|_| {
                let n = if random.below(20) == 0 { 32_768 } else { 1 };
                counter.add(n);
                n
            }))
        };
        let left = wrapping_sum(together(6, work));
        assert_eq!(counter.sum(), left);
        assert_eq!(counter.take(), left);
        assert_eq!(counter.take(), 0);
    }
}

// A sum never has an older base than one that was set before it, or one not yet set.
fn set_is_one_instant() {
    const STEP: i64 = 1_000_000;
    const SETS: i64 = 400;
    static COUNTER: Counter = Counter::new();
    let (begun, done, setting) = (AtomicI64::new(0), AtomicI64::new(0), AtomicUsize::new(1));
    let set = || {
        let _decrement = DecrementOnDrop(&setting);
        for base in 1..=SETS {
            begun.store(base, SeqCst);
            COUNTER.set(base * STEP);
            done.store(base, SeqCst);
            assert!(COUNTER.sum() / STEP == base);
        }
    };
    let read = || {
        let mut last = 0;
        while setting.load(SeqCst) > 0 {
            let oldest = done.load(SeqCst);
            let compared = COUNTER.compare(oldest * STEP - 1);
            assert_eq!(compared.ordering, Ordering::Greater, "{compared:?}, {oldest} sets done");
            let base = COUNTER.sum() / STEP;
            assert!(oldest <= base && base <= begun.load(SeqCst), "{base} after {oldest}");
            assert!(base >= last, "{base} after {last}");
            last = base;
        }
    };
    let add = |thread: usize| {
        leave_lanes_if(thread == 1);
        // All adds together are less than a step.
        for _ in 0..STEP / 8 {
            COUNTER.inc();
            if setting.load(SeqCst) == 0 {
                break;
            }
        }
    };
    let work = |thread: usize| match thread {
        0 | 1 => add(thread),
        2 => set(),
        _ => read(),
    };
    together(5, work);
}

// Random operations change the counter's mode all the time, and no unit is lost.
fn mixed_ops_lose_nothing() {
    for counter in [Counter::new(), Counter::with_batch(2)] {
        let work = |thread: usize| {
            leave_lanes_if(thread == 3);
            let mut random = Random::new(thread as u64);
            let mut balance = 0;
            for _ in 0..150 {
                for _ in 0..random.below(700) {
                    counter.inc();
                    balance += 1;
                }
                let asked = match random.below(5) {
                    0 => counter.sum(),
                    1 => counter.compare(random.below(9000) as i64).exact.unwrap_or(0),
                    2 => counter.bounds().high,
                    3 => {
                        let taken = counter.take();
                        balance -= taken;
                        taken
                    }
                    _ => 0,
                };
                assert!(asked >= 0, "{asked}, though nothing below 0 is possible");
            }
            balance
        };
        let left = wrapping_sum(together(6, work));
        assert_eq!(counter.sum(), left);
    }
}

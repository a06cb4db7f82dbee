//! Random operations of one thread on any CPU: all results are those of a sequential model.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::alloc::Layout;

use thiscpu::{__test_support, Counter, Counters, PairWord, PerCpu, PerCpuPair, RawCache};

use crate::common::{Object, Scenario, TIERS, alloc_many, close, free_all, pin, scale, scenario};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(properties::counter_matches_sequential_model, TIERS),
    scenario!(properties::counters_match_sequential_model, TIERS),
    scenario!(properties::word_matches_sequential_model, TIERS),
    scenario!(properties::pair_matches_sequential_model, TIERS),
    scenario!(properties::slab_matches_sequential_model, TIERS),
];

/// Runs `test` on random values of `strategy`, the same in every run; failures are shrunk.
fn check<S: Strategy<Value: Clone>>(strategy: S, test: impl Fn(S::Value)) {
    // Failures are shown only, and not saved into the source tree.
    let cases = scale::rounds(64) as u32;
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(
        config,
        proptest::test_runner::TestRng::deterministic_rng(Default::default()),
    );
    let result = runner.run(&strategy, |value| {
        test(value);
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

/// An operation on a counter.
#[derive(Clone, Debug)]
enum Op {
    Add(i64),
    Sum,
    Set(i64),
    Take,
    Compare(i64),
    Bounds,
    Read,
    /// Moves to another CPU.
    Move(usize),
}

/// Returns amounts that stay in a window, leave it, fit no window, and wrap.
fn amount() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => -3..=3i64,
        2 => -2000..=2000i64,
        1 => Just(32_768),
        1 => Just(-32_768),
        1 => any::<i64>(),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => amount().prop_map(Op::Add),
        2 => Just(Op::Sum),
        1 => amount().prop_map(Op::Set),
        1 => Just(Op::Take),
        2 => amount().prop_map(Op::Compare),
        2 => Just(Op::Bounds),
        1 => Just(Op::Read),
        2 => (0..4usize).prop_map(Op::Move),
    ]
}

// All bounds contain the value, and exact answers are exact.
fn counter_matches_sequential_model() {
    check((prop_oneof![Just(0u64), Just(2), Just(1024)], vec(op(), 0..300)), |(batch, ops)| {
        let counter = Counter::with_batch(batch);
        let mut value = 0i64;
        for op in ops {
            step(&counter, &mut value, &op);
            let bounds = counter.bounds();
            assert!(
                bounds.low <= value && value <= bounds.high,
                "{value} after {op:?}: {bounds:?}"
            );
        }
        assert_eq!(counter.sum(), value);
    });
}

fn step(counter: &Counter, value: &mut i64, op: &Op) {
    match *op {
        Op::Add(n) => {
            counter.add(n);
            *value = value.wrapping_add(n);
        }
        Op::Sum => assert_eq!(counter.sum(), *value),
        Op::Set(to) => {
            counter.set(to);
            *value = to;
        }
        Op::Take => assert_eq!(counter.take(), std::mem::take(value)),
        Op::Compare(rhs) => {
            let compared = counter.compare(rhs);
            assert_eq!(compared.ordering, (*value).cmp(&rhs));
            assert!(compared.exact.is_none_or(|exact| exact == *value), "{compared:?}");
        }
        Op::Bounds | Op::Read => {
            let (read, bounds) = (counter.read(), counter.bounds());
            assert!(bounds.low <= read && read <= bounds.high, "{read} is outside {bounds:?}");
        }
        Op::Move(cpu) => pin::pin(cpu),
    }
}

fn counters_match_sequential_model() {
    const N: usize = 3;
    check(vec((0..N, amount(), 0..4usize), 0..300), |adds| {
        let counters = Counters::<N>::new();
        let mut values = [0i64; N];
        for (i, n, cpu) in adds {
            pin::pin(cpu);
            counters.add(i, n);
            values[i] = values[i].wrapping_add(n);
            assert_eq!(counters.sum(i), values[i]);
        }
        assert_eq!(counters.snapshot(), values);
    });
}

// The lanes' total follows adds and exchanges on any CPU, for a narrow and a wide word.
fn word_matches_sequential_model() {
    check(vec((any::<u8>(), 0..3usize, 0..4usize), 0..200), |ops| {
        let (narrow, wide) = (PerCpu::<u8>::new(), PerCpu::<i64>::new());
        let (mut narrow_total, mut wide_total) = (0u8, 0i64);
        for (n, op, cpu) in ops {
            pin::pin(cpu);
            match op {
                0 => {
                    narrow.add(n);
                    wide.add(-i64::from(n));
                    narrow_total = narrow_total.wrapping_add(n);
                    wide_total -= i64::from(n);
                }
                1 => {
                    narrow_total = narrow_total.wrapping_sub(narrow.xchg(n)).wrapping_add(n);
                    wide_total = wide_total - wide.xchg(i64::from(n)) + i64::from(n);
                }
                _ => {
                    let current = wide.add_return(0);
                    if wide.cmpxchg(current, current + 1).is_ok() {
                        wide_total += 1;
                    }
                }
            }
            assert_eq!(narrow.lanes().fold(0, u8::wrapping_add), narrow_total);
            assert_eq!(wide.lanes().sum::<i64>(), wide_total);
        }
    });
}

// A pair changes as a whole, and only if it equals the expected one.
fn pair_matches_sequential_model() {
    check(vec((any::<u32>(), 0..4usize), 0..200), |ops| {
        let (small, large) = (PerCpuPair::<u32>::new(), PerCpuPair::<u64>::new());
        for (done, (n, cpu)) in ops.into_iter().enumerate() {
            pin::pin(cpu);
            // The first word is always even, so the first expected pair is always wrong.
            update(&small, (n | 1, 0), |(_, count)| (n & !1, count + 1));
            update(&large, (u64::from(n) << 32 | 1, 0), |(first, count)| (first + 2, count + 1));
            let done = done + 1;
            assert_eq!(small.lanes().map(|(_, count)| count as usize).sum::<usize>(), done);
            assert_eq!(large.lanes().map(|(_, count)| count as usize).sum::<usize>(), done);
            assert!(large.lanes().all(|(first, count)| first == 2 * count));
        }
    });
}

/// Updates this CPU's pair by `to`, though the thread may change lanes at any time.
///
/// The first try expects `wrong`, and must fail.
fn update<W: PairWord>(pair: &PerCpuPair<W>, wrong: (W, W), to: impl Fn((W, W)) -> (W, W)) {
    let mut expected = wrong;
    let mut tries = 0;
    while let Err(actual) = pair.cmpxchg_double(expected, to(expected)) {
        expected = actual;
        tries += 1;
    }
    assert!(tries > 0, "a pair was exchanged that differs from the expected one");
}

/// An operation on a slab cache.
#[derive(Clone, Debug)]
enum SlabOp {
    Alloc(u64),
    /// Frees some objects, each chosen by the index.
    Free(usize, prop::sample::Index),
    Shrink,
    /// Prefills some objects, uses half of them, and drops the others.
    Prefill(usize),
    Move(usize),
}

fn slab_ops() -> impl Strategy<Value = Vec<(SlabOp, bool)>> {
    let op = prop_oneof![
        6 => (1..30u64).prop_map(SlabOp::Alloc),
        5 => (1..40usize, any::<prop::sample::Index>()).prop_map(|(n, at)| SlabOp::Free(n, at)),
        1 => Just(SlabOp::Shrink),
        1 => (0..60usize).prop_map(SlabOp::Prefill),
        2 => (0..4usize).prop_map(SlabOp::Move),
    ];
    // A thread without a lane makes one in eight of the calls.
    vec((op, prop::bool::weighted(0.125)), 0..60)
}

// All allocated objects keep their contents, and the cache counts them exactly.
fn slab_matches_sequential_model() {
    let sizes = prop_oneof![Just(8), Just(24), Just(136), Just(3_000), Just(40_000), 1..9_000usize];
    check((sizes, slab_ops()), |(size, ops)| {
        let cache = RawCache::new(Layout::from_size_align(size, 8).expect("a layout"));
        let (mut objects, mut number) = (Vec::new(), 0);
        for (op, is_laneless) in ops {
            let mut step = || slab_step(&cache, &mut objects, &mut number, &op);
            match is_laneless {
                false => step(),
                true => std::thread::scope(|threads| {
                    let on_thread = || {
                        __test_support::leave_lanes();
                        step();
                    };
                    threads.spawn(on_thread).join().expect("no panic");
                }),
            }
            assert!(objects.iter_mut().all(Object::is_intact), "after {op:?}");
        }
        cache.shrink();
        assert_eq!(cache.stats().objects_outside_slabs, objects.len());
        free_all(&cache, objects);
        close(cache);
    });
}

fn slab_step(cache: &RawCache, objects: &mut Vec<Object>, number: &mut u64, op: &SlabOp) {
    match *op {
        SlabOp::Alloc(count) => {
            objects.extend(alloc_many(cache, *number, count));
            *number += count;
        }
        SlabOp::Free(count, at) => {
            for _ in 0..count.min(objects.len()) {
                objects.swap_remove(at.index(objects.len())).free(cache);
            }
        }
        SlabOp::Shrink => _ = cache.shrink(),
        SlabOp::Prefill(count) => {
            let mut prefilled = cache.prefill(count).expect("memory");
            for _ in 0..count / 2 {
                objects.push(Object::fill(cache, prefilled.alloc().expect("an object"), *number));
                *number += 1;
            }
            assert_eq!(prefilled.len(), count - count / 2);
        }
        SlabOp::Move(cpu) => pin::pin(cpu),
    }
}

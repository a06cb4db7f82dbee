//! Segments of two processes that share no CPU: exact sums, limits, and units that move.

use std::io::{Read as _, Write as _};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use thiscpu::Segment;

use super::segment_participants::{LIMIT, budget, exhausted, until};
use crate::common::cpuset::Apart;
use crate::common::segment::{Processes, file_of, shared_words, small_segment};
use crate::common::{DEFAULT_ONLY, Random, Scenario, TIERS, cpuset, pin, scale, scenario};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(segment_cpusets::cgroups_keep_processes_apart, DEFAULT_ONLY)
        .needs(cpuset::can_make)
        .not_quick(),
    scenario!(segment_cpusets::sums_are_exact, TIERS).needs(pin::two_cpus),
    scenario!(segment_cpusets::units_move_to_the_other_side, TIERS).needs(pin::two_cpus),
    scenario!(segment_cpusets::limit_holds, TIERS).needs(pin::two_cpus),
    scenario!(segment_cpusets::waiters_are_served_by_the_other_side, TIERS).needs(pin::two_cpus),
];

/// Runs `work` in two processes that share a new segment and no CPU, and then `check`.
///
/// `work` gets its side, which is 0 or 1, and the segment as its process has attached it.
fn on_both_sides(work: impl Fn(usize, &Segment), check: impl Fn(&Segment)) {
    for way in Apart::ways() {
        let segment = small_segment();
        let arrived = &shared_words()[0];
        Processes::start(2, |side| {
            way.enter(side);
            arrived.fetch_add(1, SeqCst);
            until(|| arrived.load(SeqCst) == 2);
            assert_eq!(pin::allowed().len(), 1);
            let own = Segment::from_fd(file_of(&segment).into()).expect("a segment");
            work(side, &own);
        })
        .finish();
        check(&segment);
    }
}

// The other scenarios run with cgroups where this one does, and otherwise by affinity only.
fn cgroups_keep_processes_apart() {
    let ways = Apart::ways();
    let by_cpuset = ways.iter().find(|way| matches!(way, Apart::ByCpuset(_)));
    let by_cpuset = by_cpuset.expect("two cpusets");
    let allowed = shared_words();
    Processes::start(2, |side| {
        by_cpuset.enter(side);
        let [cpu] = pin::allowed()[..] else { panic!("not one CPU") };
        allowed[side].store(cpu as u64, SeqCst);
    })
    .finish();
    assert_ne!(allowed[0].load(SeqCst), allowed[1].load(SeqCst));
}

fn sums_are_exact() {
    let [begun, ended] = [0, 8].map(|at| &shared_words()[at]);
    let work = |side, segment: &Segment| {
        let counter = segment.counter("counter").expect("room");
        let pair = segment.counters::<2>("pair").expect("room");
        let mut random = Random::new(side as u64);
        for round in 0..scale::rounds(20_000) {
            let n = if random.below(8) == 0 { 40_000 } else { random.below(100) };
            begun.fetch_add(n, SeqCst);
            counter.add(n as i64);
            pair.add(side, n as i64);
            ended.fetch_add(n, SeqCst);
            if round % 8 == 0 {
                let before = ended.load(SeqCst) as i64;
                let sums = [counter.sum(), pair.sum().iter().sum()];
                let after = begun.load(SeqCst) as i64;
                assert!(sums.iter().all(|sum| (before..=after).contains(sum)), "{sums:?}");
            }
        }
    };
    on_both_sides(work, |segment| {
        let all = ended.load(SeqCst) as i64;
        assert_eq!(segment.counter("counter").expect("it").sum(), all);
        let pair = segment.counters::<2>("pair").expect("it").sum();
        assert_eq!(pair.iter().sum::<i64>(), all);
        [begun, ended].into_iter().for_each(|word| word.store(0, SeqCst));
    });
}

// All units are credit of the other side's lane when a side needs them.
fn units_move_to_the_other_side() {
    let turns = [0, 1].map(|_| std::io::pipe().expect("a pipe"));
    let await_turn = |side: usize| (&turns[side].0).read_exact(&mut [0]).expect("a byte");
    let give_turn = |side: usize| (&turns[side].1).write_all(&[0]).expect("room");
    let rounds = scale::rounds(2000);
    let work = |side: usize, segment: &Segment| {
        let budget = budget(segment);
        for own in 0..rounds {
            if side == 1 {
                await_turn(1);
            }
            budget.try_acquire(LIMIT).expect("all units");
            assert_eq!(budget.try_acquire(1), exhausted(0));
            (0..LIMIT).for_each(|_| budget.release(1));
            for _ in 0..20 {
                budget.try_acquire(1 + own % 9).expect("units are available");
                budget.release(1 + own % 9);
            }
            give_turn(1 - side);
            if side == 0 {
                await_turn(0);
            }
        }
    };
    on_both_sides(work, |segment| assert_eq!(budget(segment).available(), LIMIT));
}

fn limit_holds() {
    let held = &shared_words()[0];
    let work = |side, segment: &Segment| {
        let budget = budget(segment);
        let mut random = Random::new(side as u64);
        for round in 0..scale::rounds(20_000) {
            let n = 1 + random.below(LIMIT * 2 / 3);
            match random.below(16) {
                0 => budget.acquire(n).expect("open"),
                _ if budget.try_acquire(n).is_err() => continue,
                _ => {}
            }
            let now = held.fetch_add(n, SeqCst) + n;
            assert!(now <= LIMIT, "{now} of {LIMIT} units are held");
            if round.is_multiple_of(64) {
                // Long enough for the other side to be refused.
                std::thread::sleep(Duration::from_micros(50));
            }
            held.fetch_sub(n, SeqCst);
            budget.release(n);
        }
    };
    on_both_sides(work, |segment| {
        let budget = budget(segment);
        until(|| budget.try_acquire(LIMIT).is_ok());
        budget.release(LIMIT);
        assert_eq!((budget.available(), budget.waiters()), (LIMIT, 0));
    });
}

// A side that holds the units goes on only when the other side waits.
fn waiters_are_served_by_the_other_side() {
    let [waits, over] = [0, 1].map(|at| &shared_words()[at]);
    let rounds = scale::rounds(300);
    let work = |_, segment: &Segment| {
        let budget = budget(segment);
        for _ in 0..rounds {
            budget.acquire(60).expect("open");
            while budget.waiters() == 0 && over.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            waits.fetch_add(u64::from(budget.waiters() > 0), SeqCst);
            budget.release(60);
        }
        over.store(1, SeqCst);
    };
    on_both_sides(work, |segment| {
        let budget = budget(segment);
        until(|| budget.acquired() == 0);
        assert_eq!((budget.available(), budget.waiters()), (LIMIT, 0));
        assert!(waits.swap(0, SeqCst) >= rounds, "hardly anybody waited");
        over.store(0, SeqCst);
    });
}

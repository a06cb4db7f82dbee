//! Slab caches that are used from two CPUs: what one has is not mixed with what the other has, and is there for it all the same.
//! One thread goes from one to the other; so nothing depends on when threads run.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::Duration;

use thiscpu::__internal::coarse_time;
use thiscpu::RawCache;

use crate::common::objects::{Object, alloc_many, cache_of, close, free_all};
use crate::common::{LANES_BY_CPU, Scenario, pin, resources, scale, scenario};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(slab::cpus_share_no_slab, LANES_BY_CPU).needs(pin::two_same_node_cpus),
    scenario!(slab::cpus_use_separate_extents, LANES_BY_CPU).needs(pin::two_same_node_cpus),
    scenario!(slab::lanes_reuse_own_objects, LANES_BY_CPU).needs(pin::two_same_node_cpus),
    scenario!(slab::demand_expires, LANES_BY_CPU).needs(pin::two_same_node_cpus),
    scenario!(slab::remote_frees_are_reused_by_allocating_cpu, LANES_BY_CPU)
        .needs(pin::two_same_node_cpus),
    scenario!(slab::takes_over_partial_slabs, LANES_BY_CPU).needs(pin::two_same_node_cpus),
    scenario!(slab::steals_when_out_of_memory, LANES_BY_CPU).needs(pin::two_same_node_cpus),
];

/// Goes to one of the two.
fn go_to(cpu: usize) {
    static CPUS: OnceLock<[usize; 2]> = OnceLock::new();
    pin::pin(CPUS.get_or_init(|| pin::same_node_cpus().expect("there are two"))[cpu]);
}

/// With their pattern.
fn some_on(cpu: usize, cache: &RawCache, count: u64) -> Vec<Object> {
    go_to(cpu);
    alloc_many(cache, (cpu as u64) << 32, count)
}

fn free_on(cpu: usize, cache: &RawCache, objects: Vec<Object>) {
    go_to(cpu);
    free_all(cache, objects);
}

/// Which fiftieth of a second it is, by the clock that says when it is forgotten what lanes have asked for.
fn span() -> u64 {
    coarse_time() / 20_000_000
}

/// That clock is all there is to wait for.
fn wait_for(number: u64) {
    while span() < number {
        sleep(Duration::from_millis(1));
    }
}

fn addresses(objects: &[Object]) -> BTreeSet<usize> {
    objects.iter().map(Object::address).collect()
}

/// What each of two has that allocate so often 100 objects in turn, and the units of 64 KiB where that is.
fn in_turn(cache: &RawCache, rounds: usize) -> ([Vec<Object>; 2], [BTreeSet<usize>; 2]) {
    let mut all = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (cpu, objects) in all.iter_mut().enumerate() {
            objects.extend(some_on(cpu, cache, 100));
        }
    }
    let units = all.each_ref().map(|all| all.iter().map(|o| o.address() >> 16).collect());
    (all, units)
}

/// Two that allocate at once have their objects far apart: what one CPU fetches ahead is not the other's.
fn cpus_share_no_slab() {
    let cache = cache_of(64);
    let (all, [one, other]) = in_turn(&cache, 100);
    assert!(one.is_disjoint(&other), "{one:?}, {other:?}");
    all.into_iter().enumerate().for_each(|(cpu, objects)| free_on(cpu, &cache, objects));
    close(cache);
}

/// Nor are their slabs side by side, once there are more than a few.
fn cpus_use_separate_extents() {
    let cache = cache_of(64);
    let (all, [one, other]) = in_turn(&cache, 400);
    assert!(one.len() >= 32 && other.len() >= 32, "{} and {} slabs", one.len(), other.len());
    let beside = one.iter().filter(|&unit| other.contains(&(unit + 1))).count();
    // The first eight, and where a neighbourhood of one follows one of the other.
    assert!(beside <= 10, "{beside} of {} slabs have one of the other's behind them", one.len());
    all.into_iter().enumerate().for_each(|(cpu, objects)| free_on(cpu, &cache, objects));
    close(cache);
}

/// Who allocates what it has just freed has the same objects, more than a CPU's own cache holds too, whatever others have done in
/// between; also when a new span of time has begun, by which it is forgotten what lanes have asked for.
fn lanes_reuse_own_objects() {
    const COUNT: u64 = 3_000;
    let in_time = || {
        let cache = cache_of(512);
        let mut is_in_time = true;
        let mut had = [BTreeSet::new(), BTreeSet::new()];
        let mut last = span();
        for round in 0..4 {
            for (cpu, had) in had.iter_mut().enumerate() {
                wait_for(last + 1);
                let objects = some_on(cpu, &cache, COUNT);
                is_in_time &= span() == last + 1;
                last = span();
                let has = addresses(&objects);
                // The lane keeps a few sheaves.
                let same = has.intersection(had).count();
                assert!(round < 2 || !is_in_time || same > 2_000, "{same} in round {round}");
                *had = has;
                free_on(cpu, &cache, objects);
            }
            assert!(!is_in_time || had[0].is_disjoint(&had[1]), "exchanged in round {round}");
        }
        close(cache);
        is_in_time
    };
    if !(0..if scale::factor() > 1 { 1 } else { 20 }).any(|_| in_time()) {
        eprintln!("this machine is too busy, or too slow, to say anything");
    }
}

/// What nobody has asked for in this span of time, nor in the one before, is anybody's.
fn demand_expires() {
    let cache = cache_of(64);
    let left = some_on(0, &cache, 3_000);
    let were = addresses(&left);
    free_on(0, &cache, left);
    wait_for(span() + 2);
    let objects = some_on(1, &cache, 200);
    assert!(addresses(&objects).is_subset(&were), "they stay where they are");
    free_on(1, &cache, objects);
    close(cache);
}

/// What one allocates and the other frees comes back to the first at once; also where the other has had many for itself.
fn remote_frees_are_reused_by_allocating_cpu() {
    let cache = cache_of(64);
    let kept = some_on(1, &cache, 20_000);
    wait_for(span() + 2);
    let before = cache.stats().slabs;
    for _ in 0..300 {
        let objects = some_on(0, &cache, 300);
        free_on(1, &cache, objects);
    }
    let slabs = cache.stats().slabs - before;
    assert!(slabs <= 6, "{slabs} slabs for 300 objects at a time");
    free_all(&cache, kept);
    close(cache);
}

/// Slabs of one that have room are there for the other, before there are new ones.
fn takes_over_partial_slabs() {
    let cache = cache_of(64);
    let objects = some_on(0, &cache, 10_000);
    let (kept, freed): (Vec<_>, Vec<_>) =
        objects.into_iter().partition(|object| object.address() % 4_096 < 64);
    free_on(0, &cache, freed);
    cache.shrink();
    let before = cache.stats().slabs;
    assert!((8..20).contains(&before), "{before} slabs");
    let others = some_on(1, &cache, 6_000);
    let after = cache.stats().slabs;
    assert!(after <= before, "{before} slabs and then {after}");
    free_all(&cache, kept);
    free_all(&cache, others);
    close(cache);
}

/// Where there is no memory one has what is left in the other's slabs, to the last object.
fn steals_when_out_of_memory() {
    let cache = cache_of(64);
    let mut objects = some_on(0, &cache, 100);
    go_to(1);
    objects.reserve(100_000);
    let limits = (resources::limit_data(0), resources::limit_address_space_to(0));
    while let Some(object) = Object::alloc(&cache, objects.len() as u64) {
        assert!(objects.len() < objects.capacity(), "there is no limit");
        objects.push(object);
    }
    drop(limits);
    let in_slabs = cache.stats().slab_bytes / 64;
    let in_lane = 1 + 2 * 124;
    assert!(objects.len() + in_lane >= in_slabs, "{} of {in_slabs}", objects.len());
    free_all(&cache, objects);
    close(cache);
}

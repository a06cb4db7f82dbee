//! Slab caches used from two CPUs: their objects are kept apart, and are still available to both.
//!
//! One thread moves between the CPUs, so nothing depends on scheduling.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::Duration;

use thiscpu::__internal::coarse_time;
use thiscpu::RawCache;

use crate::common::{
    LANES_BY_CPU, Object, Scenario, alloc_many, cache_of, close, exhaust, free_all, pin, resources,
    scale, scenario,
};

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

/// Moves the calling thread to CPU 0 or 1 of the two.
fn go_to(cpu: usize) {
    static CPUS: OnceLock<[usize; 2]> = OnceLock::new();
    pin::pin(CPUS.get_or_init(|| pin::same_node_cpus().expect("two CPUs of a node"))[cpu]);
}

fn alloc_on(cpu: usize, cache: &RawCache, count: u64) -> Vec<Object> {
    go_to(cpu);
    alloc_many(cache, (cpu as u64) << 32, count)
}

fn free_on(cpu: usize, cache: &RawCache, objects: Vec<Object>) {
    go_to(cpu);
    free_all(cache, objects);
}

/// Returns the number of the current demand span, by the clock that barns use.
///
/// A barn remembers the demand of its lanes for this span of 20 ms and the one before.
fn span() -> u64 {
    coarse_time() / 20_000_000
}

/// Waits until a demand span begins.
fn wait_for(number: u64) {
    while span() < number {
        sleep(Duration::from_millis(1));
    }
}

fn addresses(objects: &[Object]) -> BTreeSet<usize> {
    objects.iter().map(Object::address).collect()
}

/// Allocates 100 objects on each CPU in turn, `rounds` times.
///
/// Returns the objects of each CPU, and the numbers of their chunks of 64 KiB.
fn alloc_alternately(cache: &RawCache, rounds: usize) -> ([Vec<Object>; 2], [BTreeSet<usize>; 2]) {
    let mut all = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (cpu, objects) in all.iter_mut().enumerate() {
            objects.extend(alloc_on(cpu, cache, 100));
        }
    }
    let chunks = all.each_ref().map(|all| all.iter().map(|o| o.address() >> 16).collect());
    (all, chunks)
}

// CPUs that allocate at once have their objects in different slabs, so prefetching does not
// interfere.
fn cpus_share_no_slab() {
    let cache = cache_of(64);
    let (all, [one, other]) = alloc_alternately(&cache, 100);
    assert!(one.is_disjoint(&other), "{one:?}, {other:?}");
    all.into_iter().enumerate().for_each(|(cpu, objects)| free_on(cpu, &cache, objects));
    close(cache);
}

// The slabs of two CPUs are not adjacent, once there are more than a few.
fn cpus_use_separate_extents() {
    let cache = cache_of(64);
    let (all, [one, other]) = alloc_alternately(&cache, 400);
    assert!(one.len() >= 32 && other.len() >= 32, "{} and {} slabs", one.len(), other.len());
    let adjacent = one.iter().filter(|&chunk| other.contains(&(chunk + 1))).count();
    // The first eight slabs, and extents of different CPUs that follow each other.
    assert!(adjacent <= 10, "{adjacent} of {} slabs precede one of the other CPU", one.len());
    all.into_iter().enumerate().for_each(|(cpu, objects)| free_on(cpu, &cache, objects));
    close(cache);
}

// A CPU gets its own freed objects again, also more than its lane holds and in a new demand span.
//
// The other CPU's calls in between make no difference.
fn lanes_reuse_own_objects() {
    const COUNT: u64 = 3_000;
    let try_once = || {
        let cache = cache_of(512);
        let mut is_in_time = true;
        let mut previous = [BTreeSet::new(), BTreeSet::new()];
        let mut last = span();
        for round in 0..4 {
            for (cpu, previous) in previous.iter_mut().enumerate() {
                wait_for(last + 1);
                let objects = alloc_on(cpu, &cache, COUNT);
                is_in_time &= span() == last + 1;
                last = span();
                let current = addresses(&objects);
                // The lane keeps a few sheaves.
                let same = current.intersection(previous).count();
                assert!(round < 2 || !is_in_time || same > 2_000, "{same} in round {round}");
                *previous = current;
                free_on(cpu, &cache, objects);
            }
            let is_disjoint = previous[0].is_disjoint(&previous[1]);
            assert!(!is_in_time || is_disjoint, "objects were exchanged in round {round}");
        }
        close(cache);
        is_in_time
    };
    if !(0..if scale::factor() > 1 { 1 } else { 20 }).any(|_| try_once()) {
        eprintln!("this machine is too busy or too slow for this test");
    }
}

// Objects without demand in this span and the one before are available to all CPUs.
fn demand_expires() {
    let cache = cache_of(64);
    let objects = alloc_on(0, &cache, 3_000);
    let previous = addresses(&objects);
    free_on(0, &cache, objects);
    wait_for(span() + 2);
    let objects = alloc_on(1, &cache, 200);
    assert!(addresses(&objects).is_subset(&previous), "the other CPU got none of the free objects");
    free_on(1, &cache, objects);
    close(cache);
}

// One CPU allocates and the other frees: the objects return to the first at once.
//
// That holds even if the second CPU has many objects of its own.
fn remote_frees_are_reused_by_allocating_cpu() {
    let cache = cache_of(64);
    let kept = alloc_on(1, &cache, 20_000);
    wait_for(span() + 2);
    let before = cache.stats().slabs;
    for _ in 0..300 {
        let objects = alloc_on(0, &cache, 300);
        free_on(1, &cache, objects);
    }
    let slabs = cache.stats().slabs - before;
    assert!(slabs <= 6, "{slabs} slabs for 300 objects at a time");
    free_all(&cache, kept);
    close(cache);
}

// A CPU uses partial slabs of another one before new slabs.
fn takes_over_partial_slabs() {
    let cache = cache_of(64);
    let objects = alloc_on(0, &cache, 10_000);
    let (kept, freed): (Vec<_>, Vec<_>) =
        objects.into_iter().partition(|object| object.address() % 4_096 < 64);
    free_on(0, &cache, freed);
    cache.shrink();
    let before = cache.stats().slabs;
    assert!((8..20).contains(&before), "{before} slabs");
    let others = alloc_on(1, &cache, 6_000);
    let after = cache.stats().slabs;
    assert!(after <= before, "{before} slabs and then {after}");
    free_all(&cache, kept);
    free_all(&cache, others);
    close(cache);
}

// When memory has run out, a CPU gets all free objects of the other one's slabs.
fn steals_when_out_of_memory() {
    let cache = cache_of(64);
    let mut objects = alloc_on(0, &cache, 100);
    go_to(1);
    objects.reserve(100_000);
    let limits = (resources::limit_data(0), resources::limit_address_space_to(0));
    exhaust(&cache, &mut objects);
    drop(limits);
    let in_slabs = cache.stats().slab_bytes / 64;
    let in_lane = 1 + 2 * 124;
    assert!(objects.len() + in_lane >= in_slabs, "{} of {in_slabs} objects", objects.len());
    free_all(&cache, objects);
    close(cache);
}

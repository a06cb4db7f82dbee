//! Slab caches in every order of steps, with weak memory.

use std::alloc::Layout;

use thiscpu::model::{self, Machine};
use thiscpu::{RawCache, Tier};

use crate::run::in_every_order_on;
use crate::slab::CheckedCache;

/// Four objects to a slab, and two to a sheaf.
static CACHE: RawCache = RawCache::new(Layout::new::<[u8; 16 * 1024]>());

/// Like `CACHE`, in malloc's direct table.
// SAFETY: this is the only cache of this program in malloc's table.
static DIRECT_MALLOC: RawCache = unsafe { RawCache::for_malloc(Layout::new::<[u8; 16 * 1024]>()) };

/// Like `CACHE`, with a direct table and hot objects.
static DIRECT: RawCache = RawCache::direct(Layout::new::<[u8; 16 * 1024]>());

/// Numbers of allocations, frees, allocations, and so on, that set up the lane of CPU 1.
type Setup = &'static [usize];

/// One sheaf, with one object.
const ONE_OBJECT: Setup = &[1];
/// One sheaf, with two objects, one of which was freed by the direct path.
const TWO_OBJECTS: Setup = &[2, 1];
/// An empty main sheaf and a full spare.
const FULL_SPARE: Setup = &[3, 2, 1];
/// Two full sheaves.
const BOTH_FULL: Setup = &[5, 3];

/// Runs `test` in all orders with up to `preemptions` preemptions, in `tiers`.
fn in_every_order(tiers: &[Tier], preemptions: usize, setup: Setup, test: fn(&CheckedCache)) {
    in_every_order_of(&CACHE, tiers, preemptions, setup, test);
}

/// Runs `test` on `cache` in all orders with up to `preemptions` preemptions, in `tiers`.
fn in_every_order_of(
    cache: &'static RawCache,
    tiers: &[Tier],
    preemptions: usize,
    setup: Setup,
    test: fn(&CheckedCache),
) {
    let machines = tiers.iter().map(|&tier| Machine::new(2, tier));
    in_every_order_on(machines, preemptions, move || {
        let cache = CheckedCache::of(cache);
        model::run_on(1);
        let calls: [fn(&CheckedCache); 2] = [alloc, CheckedCache::free];
        for (&count, call) in setup.iter().zip(calls.iter().cycle()) {
            (0..count).for_each(|_| call(&cache));
        }
        test(&cache);
        cache.check_end();
    });
}

const BOTH: [Tier; 2] = [Tier::RseqCpu, Tier::Atomic];

/// Starts another thread on CPU 1.
fn spawn_on_cpu_1(cache: &CheckedCache, work: fn(&CheckedCache)) -> model::Thread<()> {
    let cache = cache.clone();
    model::spawn(1, move || work(&cache))
}

/// Starts another thread on CPU 1 that frees the first object.
///
/// The object is chosen before the thread starts, because passing it on is not modeled.
fn free_on_cpu_1(cache: &CheckedCache) -> model::Thread<()> {
    let (cache, object) = (cache.clone(), cache.first());
    model::spawn(1, move || cache.free_object(object))
}

fn alloc(cache: &CheckedCache) {
    assert!(cache.alloc(), "an allocation failed with memory left");
}

// One thread gets the lane's last object, the other trades for a sheaf.
#[test]
fn two_allocs_never_share_an_object() {
    in_every_order(&BOTH, 2, ONE_OBJECT, |cache| {
        let other = spawn_on_cpu_1(cache, alloc);
        alloc(cache);
        other.join();
    });
}

#[test]
fn alloc_and_free_on_one_lane_are_exact() {
    in_every_order(&BOTH, 2, ONE_OBJECT, |cache| {
        let other = free_on_cpu_1(cache);
        alloc(cache);
        other.join();
    });
}

// Two threads find at once that main and spare sheaf should swap.
#[test]
fn concurrent_sheaf_swaps_lose_nothing() {
    in_every_order(&[Tier::RseqCpu], 2, FULL_SPARE, |cache| {
        let other = spawn_on_cpu_1(cache, alloc);
        alloc(cache);
        other.join();
    });
}

// Two threads trade a full sheaf of the lane for an empty one at once.
#[test]
fn concurrent_trades_lose_nothing() {
    in_every_order(&[Tier::RseqCpu], 2, BOTH_FULL, |cache| {
        let other = free_on_cpu_1(cache);
        cache.free_last();
        other.join();
    });
}

// Another CPU flushes the lane while it is in use.
#[test]
fn flush_during_use_loses_nothing() {
    in_every_order(&BOTH, 2, ONE_OBJECT, flushed_during_use);
}

fn flushed_during_use(cache: &CheckedCache) {
    let object = cache.first();
    let other = model::spawn(1, {
        let cache = cache.clone();
        move || {
            alloc(&cache);
            cache.free_object(object);
        }
    });
    model::run_on(0);
    cache.raw.shrink();
    other.join();
}

// Another CPU flushes the lane while its sheaves are traded.
#[test]
fn flush_during_trade_loses_nothing() {
    in_every_order(&[Tier::RseqCpu], 2, BOTH_FULL, |cache| {
        let other = free_on_cpu_1(cache);
        model::run_on(0);
        cache.raw.shrink();
        other.join();
    });
}

// Another CPU flushes a lane that direct sections use.
#[test]
fn flush_of_direct_lane_loses_nothing() {
    in_every_order_of(&DIRECT_MALLOC, &[Tier::RseqCpu], 2, TWO_OBJECTS, flushed_during_use);
    in_every_order_of(&DIRECT, &[Tier::RseqCpu], 2, TWO_OBJECTS, flushed_during_use);
}

// Another CPU flushes a lane while its direct path is enabled.
#[test]
fn flush_while_direct_path_is_enabled_loses_nothing() {
    for cache in [&DIRECT_MALLOC, &DIRECT] {
        in_every_order_of(cache, &[Tier::RseqCpu], 2, TWO_OBJECTS, |cache| {
            cache.raw.unpublish_direct();
            let other = model::spawn(0, {
                let cache = cache.clone();
                move || cache.raw.shrink()
            });
            cache.raw.enable_direct();
            cache.free_last();
            other.join();
        });
    }
}

//! Slab caches in every order of steps, with weak memory.

use std::alloc::Layout;

use thiscpu::model::{self, Machine, exhaustive};
use thiscpu::{RawCache, Tier};

use crate::slab::Store;

/// Four objects a slab; a sheaf has two entries.
static CACHE: RawCache = RawCache::new(Layout::new::<[u8; 16 * 1024]>());

/// The same, found at the front.
// SAFETY: there is no other.
static FRONT: RawCache = unsafe { RawCache::at_front(Layout::new::<[u8; 16 * 1024]>()) };

/// The same with a front of its own, and hot entries.
static NEAR: RawCache = RawCache::near(Layout::new::<[u8; 16 * 1024]>());

/// A lane's calls, which make it what a test wants, on CPU 1: so many allocations, then so many frees, and so on.
type Before = &'static [usize];

/// One sheaf, with one entry.
const ONE_ENTRY: Before = &[1];
/// One sheaf, with two of them: one comes there by the front.
const TWO_ENTRIES: Before = &[2, 1];
/// An empty sheaf in use, and a full one.
const FULL_SPARE: Before = &[3, 2, 1];
/// Two full ones.
const BOTH_FULL: Before = &[5, 3];

/// Runs `test` in every order with up to `preemptions` preemptions, in those tiers.
fn in_every_order(tiers: &[Tier], preemptions: usize, before: Before, test: fn(&Store)) {
    in_every_order_of(&CACHE, tiers, preemptions, before, test);
}

/// The same on that cache.
fn in_every_order_of(
    cache: &'static RawCache,
    tiers: &[Tier],
    preemptions: usize,
    before: Before,
    test: fn(&Store),
) {
    for &tier in tiers {
        let orders = exhaustive(Machine::new(2, tier), preemptions, move || {
            let store = Store::of(cache);
            model::run_on(1);
            let calls: [fn(&Store); 2] = [|store| assert!(store.alloc()), Store::free];
            for (&count, call) in before.iter().zip(calls.iter().cycle()) {
                (0..count).for_each(|_| call(&store));
            }
            test(&store);
            store.check_end();
        });
        println!("{tier}: {orders} orders");
    }
}

const BOTH: [Tier; 2] = [Tier::RseqCpu, Tier::Atomic];

/// Another thread on CPU 1.
fn beside(store: &Store, work: fn(&Store)) -> model::Thread<()> {
    let store = store.clone();
    model::spawn(1, move || work(&store))
}

/// Another thread on CPU 1 that frees an object which was out before it began: what tells it of the object is not
/// modelled.
fn free_beside(store: &Store) -> model::Thread<()> {
    let (store, object) = (store.clone(), store.first());
    model::spawn(1, move || store.free_this(object))
}

fn alloc(store: &Store) {
    assert!(store.alloc(), "there is memory, and no object");
}

/// One gets the last entry of the lane, the other a sheaf.
#[test]
fn two_allocs_never_share_an_object() {
    in_every_order(&BOTH, 2, ONE_ENTRY, |store| {
        let other = beside(store, alloc);
        alloc(store);
        other.join();
    });
}

#[test]
fn alloc_and_free_on_one_lane_are_exact() {
    in_every_order(&BOTH, 2, ONE_ENTRY, |store| {
        let other = free_beside(store);
        alloc(store);
        other.join();
    });
}

/// Both find that the sheaves should change places.
#[test]
fn concurrent_sheaf_swaps_lose_nothing() {
    in_every_order(&[Tier::RseqCpu], 2, FULL_SPARE, |store| {
        let other = beside(store, alloc);
        alloc(store);
        other.join();
    });
}

/// Both have an empty sheaf for the lane, and take a full one out.
#[test]
fn concurrent_trades_lose_nothing() {
    in_every_order(&[Tier::RseqCpu], 2, BOTH_FULL, |store| {
        let other = free_beside(store);
        store.free_last();
        other.join();
    });
}

/// The lane is emptied by another CPU while it is used.
#[test]
fn flush_during_use_loses_nothing() {
    in_every_order(&BOTH, 2, ONE_ENTRY, emptied_while_used);
}

fn emptied_while_used(store: &Store) {
    let object = store.first();
    let other = model::spawn(1, {
        let store = store.clone();
        move || {
            alloc(&store);
            store.free_this(object);
        }
    });
    model::run_on(0);
    store.cache.shrink();
    other.join();
}

/// The same while its sheaves are traded.
#[test]
fn flush_during_trade_loses_nothing() {
    in_every_order(&[Tier::RseqCpu], 2, BOTH_FULL, |store| {
        let other = free_beside(store);
        model::run_on(0);
        store.cache.shrink();
        other.join();
    });
}

/// A lane that is found at the front, emptied while it is used.
#[test]
fn flush_of_direct_lane_loses_nothing() {
    in_every_order_of(&FRONT, &[Tier::RseqCpu], 2, TWO_ENTRIES, emptied_while_used);
    in_every_order_of(&NEAR, &[Tier::RseqCpu], 2, TWO_ENTRIES, emptied_while_used);
}

/// The same while it comes there.
#[test]
fn flush_while_direct_path_is_enabled_loses_nothing() {
    for cache in [&FRONT, &NEAR] {
        in_every_order_of(cache, &[Tier::RseqCpu], 2, TWO_ENTRIES, |store| {
            store.cache.leave_front();
            let other = model::spawn(0, {
                let store = store.clone();
                move || store.cache.shrink()
            });
            store.cache.come_to_front();
            store.free_last();
            other.join();
        });
    }
}

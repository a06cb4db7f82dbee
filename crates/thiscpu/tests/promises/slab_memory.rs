//! Slab caches: what they take from the system, and give back.

use std::alloc::Layout;

use thiscpu::{Cache, RawCache, probe};

use crate::common::objects::{Object, cache_of, close, free_all, some};
use crate::common::threads::together;
use crate::common::{ALL, Scenario, limits, pin, slow};

pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario::new("slab::shrink_gives_memory_back", &ALL, shrink_gives_memory_back),
    Scenario::new("slab::much_freed_goes_back", &ALL, much_freed_goes_back),
    Scenario::new("slab::what_is_idle_goes_back", &ALL, what_is_idle_goes_back),
    Scenario::new("slab::all_locked", &ALL, all_locked).needs(limits::can_lock_all),
    Scenario::new("slab::protected_pages_stay_protected", &ALL, protected_pages_stay_protected),
    Scenario::new("slab::many_caches", &ALL, many_caches),
    Scenario::new("slab::closed_while_others_free", &ALL, closed_while_others_free),
];

const MIB: i64 = 1 << 20;

/// So many objects, all on the first CPU or on all in turn, of which every page is touched.
fn touched(cache: &RawCache, objects: &mut Vec<Object>, count: u64, is_spread: bool) {
    for number in 0..count {
        if number % 5_000 == 0 {
            pin::pin(if is_spread { number as usize / 5_000 } else { 0 });
        }
        objects.extend(Object::alloc(cache, number));
    }
    assert_eq!(objects.len() as u64, count);
}

fn resident() -> i64 {
    limits::memory("VmRSS")
}

/// All but what is in use, and what is in use stays.
fn shrink_gives_memory_back() {
    const COUNT: u64 = 64 << 10;
    let cache = cache_of(1_000);
    let mut objects = Vec::with_capacity(COUNT as usize);
    free_all(&cache, some(&cache, 0, 10));
    cache.shrink();
    let before = resident();
    for kept in [0, 100, 3_000] {
        touched(&cache, &mut objects, COUNT, true);
        let growth = resident() - before;
        assert!(growth > 60 * MIB, "grew by {growth} bytes");
        for object in objects.drain(kept..).rev() {
            object.free(&cache);
        }
        // Some of it has gone back by then, or all.
        cache.shrink();
        let (after, needed) = (resident() - before, kept as i64 * 1_000);
        assert!(after < needed + 5 * MIB, "still {after} bytes, for {needed}");
        free_all(&cache, std::mem::take(&mut objects));
    }
    cache.shrink();
    assert_eq!(cache.stats().slab_bytes, 0);
    close(cache);
}

/// Without a call for it: what stays is what a stock and lanes have, and 20 MiB of free pages.
fn much_freed_goes_back() {
    for size in [256, 4_096, 65_536] {
        let cache = cache_of(size);
        let count = 200 * MIB as u64 / size as u64;
        let mut objects = Vec::with_capacity(count as usize);
        // What is left of the cache before.
        cache.shrink();
        let before = resident();
        touched(&cache, &mut objects, count, false);
        let growth = resident() - before;
        assert!(growth > 180 * MIB, "{size} bytes: grew by {growth} bytes");
        // In order, as they lie in slabs.
        objects.drain(..).for_each(|object| object.free(&cache));
        // The list of the objects, whose pages were counted, and 16 MiB in a stock.
        let (after, list) = (resident() - before, 24 * count as i64);
        assert!(after < list + 40 * MIB, "{size} bytes: still {after}");
        close(cache);
    }
}

/// Nobody calls for it: what a stock has, and nobody needs, goes back while others trade.
fn what_is_idle_goes_back() {
    let cache = cache_of(1_000);
    let count = 16 * MIB as u64 / 1_000;
    pin::pin(0);
    let objects = some(&cache, 0, count);
    free_all(&cache, objects);
    let in_stocks = || cache.stats().objects_in_stocks as u64;
    assert!(in_stocks() > count / 2, "only {} of {count} are in stock", in_stocks());
    // On another CPU if there is one, and fewer than that, so that most of it stays idle.
    pin::pin(1);
    while in_stocks() > count / 8 {
        free_all(&cache, some(&cache, 0, count / 16));
    }
    close(cache);
}

/// Where all memory is locked, present and future, that of objects is too, and stays; it is used again, and to give it back does
/// no harm.
fn all_locked() {
    limits::lock_all().expect("what was tried before");
    let before = [resident(), limits::memory("VmLck")];
    let cache = cache_of(10_000);
    let objects = some(&cache, 0, 10);
    let growth = resident() - before[0];
    assert!(growth < 8 * MIB, "grew by {growth} bytes");
    for round in 0..5 {
        free_all(&cache, some(&cache, 10 * round, 2_000));
        cache.shrink();
    }
    let growth = resident() - before[0];
    assert!(growth < 40 * MIB, "grew by {growth} bytes");
    let locked = limits::memory("VmLck") - before[1];
    assert!(locked > 20 * MIB, "{locked} bytes are locked");
    free_all(&cache, objects);
    close(cache);
}

/// More of the space becomes accessible without what is being touched.
fn protected_pages_stay_protected() {
    const PAGE: usize = 4096;
    let layout = Layout::from_size_align(4 * PAGE, PAGE).expect("a layout");
    let cache = RawCache::new(layout);
    let object = cache.alloc().expect("no memory");
    let page = object.as_ptr().addr() + PAGE;
    let protect = |access| {
        // SAFETY: a page of an object that is this function's own.
        assert_eq!(unsafe { libc::mprotect(page as *mut _, PAGE, access) }, 0);
    };
    protect(libc::PROT_READ);
    // So many that more of the address space has to become accessible, several times.
    let others: Vec<_> = (0..2_000).map(|_| cache.alloc().expect("no memory")).collect();
    assert_eq!(access_to(page), "r--p");
    protect(libc::PROT_READ | libc::PROT_WRITE);
    for object in others.into_iter().chain([object]) {
        // SAFETY: each is from there, and not used any more.
        unsafe { cache.free(object) };
    }
    close(cache);
}

/// What the system says of a page.
fn access_to(page: usize) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("a list of mappings");
    let holds = |line: &&str| {
        let (range, _) = line.split_once(' ').expect("a range and more");
        let (from, to) = range.split_once('-').expect("two addresses");
        let address = |text| usize::from_str_radix(text, 16).expect("an address");
        (address(from)..address(to)).contains(&page)
    };
    let line = maps.lines().find(holds).expect("it is mapped");
    line.split(' ').nth(1).expect("what may be done there").to_owned()
}

/// Each leaves its memory to the next.
fn many_caches() {
    let make = |n: u64| {
        let cache = cache_of(8 << (n % 12));
        free_all(&cache, some(&cache, n, 70));
        close(cache);
        let cache: Cache<u64> = Cache::new();
        assert_eq!(*cache.alloc(n), n);
        cache.close().expect("nothing is out");
    };
    let rounds = slow::rounds(1_000);
    together(2, |_| (0..rounds / 4).for_each(make), || ());
    let before = [limits::memory("VmRSS"), limits::memory("VmSize")];
    (0..rounds).for_each(make);
    // More than a lane has room for.
    let make_small = |n| {
        let cache = cache_of(64);
        free_all(&cache, some(&cache, n, 1));
        close(cache);
    };
    (0..slow::rounds(12_000)).for_each(make_small);
    let growth = [limits::memory("VmRSS") - before[0], limits::memory("VmSize") - before[1]];
    assert!(growth.iter().all(|&bytes| bytes < MIB / 2), "grew by {growth:?} bytes");
    assert!(limits::anonymous_mappings() < 60, "{} mappings", limits::anonymous_mappings());
}

/// Whoever frees the last object may still be in that call when the cache is closed, and its memory another's.
fn closed_while_others_free() {
    for round in 0..slow::rounds(400) {
        let mut cache: Cache<[u64; 8]> = Cache::new();
        let objects: Vec<_> = (0..40).map(|n| cache.alloc([n; 8])).collect();
        std::thread::scope(|threads| {
            threads.spawn(move || {
                if round % 2 == 0 {
                    probe::leave_lanes();
                }
                drop(objects);
            });
            while let Err(error) = cache.close() {
                assert_ne!(error.objects, 0);
                cache = error.cache;
            }
            let cache = cache_of(64);
            free_all(&cache, some(&cache, round, 100));
            close(cache);
        });
    }
}

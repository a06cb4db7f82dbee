//! Slab caches: none to be had, set aside, given back, all of it locked.

use std::alloc::Layout;

use thiscpu::{Cache, Error, PerCpu, RawCache, probe};

use crate::common::objects::{Object, close, free_all, some};
use crate::common::random::Random;
use crate::common::threads::together;
use crate::common::{ALL, Scenario, limits, pin, slow};

pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario::new("slab::no_memory_at_first", &ALL, no_memory_at_first),
    Scenario::new("slab::nothing_is_reserved", &ALL, nothing_is_reserved),
    Scenario::new("slab::little_address_space", &ALL, little_address_space),
    Scenario::new("slab::others_in_the_way", &ALL, others_in_the_way),
    Scenario::new("slab::no_memory_later", &ALL, no_memory_later),
    Scenario::new("slab::no_memory_for_sheaves", &ALL, no_memory_for_sheaves),
    Scenario::new("slab::lanes_once_there_is_memory", &ALL, lanes_once_there_is_memory),
    Scenario::new("slab::reserved_are_there", &ALL, reserved_are_there),
    Scenario::new("slab::shrink_gives_memory_back", &ALL, shrink_gives_memory_back),
    Scenario::new("slab::much_freed_goes_back", &ALL, much_freed_goes_back),
    Scenario::new("slab::what_is_idle_goes_back", &ALL, what_is_idle_goes_back),
    Scenario::new("slab::all_locked", &ALL, all_locked).needs(limits::can_lock_all),
    Scenario::new("slab::protected_pages_stay_protected", &ALL, protected_pages_stay_protected),
    Scenario::new("slab::many_caches", &ALL, many_caches),
    Scenario::new("slab::closed_while_others_free", &ALL, closed_while_others_free),
];

const MIB: i64 = 1 << 20;

fn cache_of(size: usize) -> RawCache {
    RawCache::new(Layout::from_size_align(size, 8).expect("a layout"))
}

/// Objects until there are no more.
fn exhaust(cache: &RawCache, objects: &mut Vec<Object>) {
    while let Some(object) = Object::alloc(cache, objects.len() as u64) {
        assert!(objects.len() < objects.capacity(), "there is no limit");
        objects.push(object);
    }
}

/// Frees each of them, and gets others.
fn use_it(cache: &RawCache) {
    together(3, |thread| free_all(cache, some(cache, (thread as u64) << 32, 900)), || ());
}

/// No call that finds none does harm; with room again all is as if nothing had been.
fn no_memory_at_first() {
    let (cache, typed) = (cache_of(640), Cache::<[u64; 80]>::new());
    let limit = limits::limit_address_space();
    let mut sizes = Vec::with_capacity(3);
    for n in 1..4 {
        assert_eq!(cache.alloc(), None);
        let expected = Error::NoMemory { objects: n, bytes: 640 };
        let error = cache.reserve(n).map(drop).expect_err("no room");
        assert_eq!(error, expected);
        assert!(error.to_string().contains("640 bytes; raise the limit on address space"));
        assert_eq!(typed.reserve(n).map(drop), Err(expected));
        sizes.push(limits::memory("VmSize"));
    }
    assert_eq!(sizes[1], sizes[2], "what was of no use stays");
    drop(limit);
    use_it(&cache);
    let values: Vec<_> = (0..500).map(|n| typed.alloc([n; 80])).collect();
    assert!((0..).zip(&values).all(|(n, value)| **value == [n; 80]));
    drop(values);
    typed.close().expect("nothing is out");
    close(cache);
}

/// Address space is taken as it is needed, and a little beyond.
fn nothing_is_reserved() {
    // What belongs to lanes.
    let other = cache_of(8);
    free_all(&other, some(&other, 0, 1));
    let cache = cache_of(10_000);
    let before = limits::memory("VmSize");
    let mut objects = Vec::with_capacity(30_000);
    for (count, most) in [(100, 8), (10_000, 120), (20_000, 230)] {
        let there = objects.len() as u64;
        objects.extend(some(&cache, there, count - there));
        let growth = limits::memory("VmSize") - before;
        assert!(growth < most * MIB, "{count} objects: grew by {growth} bytes");
    }
    free_all(&cache, objects);
    close(cache);
}

/// A process that may have little can use nearly all of it, again and again.
fn little_address_space() {
    let cache = cache_of(3_000);
    let mut objects = Vec::with_capacity(200_000);
    objects.extend(Object::alloc(&cache, 0));
    let limit = limits::limit_address_space_to(64 * MIB as u64);
    for _ in 0..3 {
        exhaust(&cache, &mut objects);
        let bytes = objects.len() as i64 * 3_000;
        assert!((56 * MIB..64 * MIB).contains(&bytes), "{bytes} bytes");
        assert_eq!(cache.alloc(), None);
        objects.iter_mut().for_each(|object| assert!(object.is_whole()));
        objects.drain(..).for_each(|object| object.free(&cache));
    }
    drop(limit);
    use_it(&cache);
    close(cache);
}

/// Where something else is mapped the space goes on behind it, and leaves it alone.
fn others_in_the_way() {
    const PAGE: usize = 65_536;
    let cache = cache_of(10_000);
    let mut objects = some(&cache, 0, 10);
    let base = objects[0].address() & !(PAGE - 1);
    let others: Vec<usize> = [3, 5, 9, 40, 41, 90]
        .map(|mib| base + (mib << 20))
        .into_iter()
        .filter(|&address| map_at(address, PAGE))
        .collect();
    assert!(others.len() > 3, "{} mappings", others.len());
    objects.extend(some(&cache, 10, 12_000));
    let last = objects.iter().map(Object::address).max();
    assert!(last > others.last().copied(), "it did not get that far");
    for object in &objects {
        let address = object.address();
        assert!(others.iter().all(|&other| address + 10_000 <= other || other + PAGE <= address));
    }
    for &other in &others {
        // SAFETY: mapped above, and this function's own.
        let page = unsafe { std::slice::from_raw_parts(other as *const u8, PAGE) };
        assert!(page.iter().all(|&byte| byte == 0));
    }
    free_all(&cache, objects);
    use_it(&cache);
    cache.shrink();
    close(cache);
}

/// Maps pages at an address, unless something is there.
fn map_at(address: usize, bytes: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: it replaces nothing, and stays.
    unsafe { libc::mmap(address as *mut _, bytes, access, flags, -1, 0) as usize == address }
}

/// Where memory ends, each object is still one user's, and what is freed can be had again.
fn no_memory_later() {
    pin::pin(0);
    let (cache, mut random) = (cache_of(5_000), Random::new(1));
    let mut objects = Vec::with_capacity(100_000);
    objects.extend(Object::alloc(&cache, 0));
    let limit = limits::limit_data(20 * MIB as u64);
    exhaust(&cache, &mut objects);
    let most = objects.len();
    assert!((12 * MIB..24 * MIB).contains(&(most as i64 * 5_000)), "{most} objects");
    for _ in 0..5 {
        assert_eq!(cache.alloc(), None);
        for _ in 0..random.below(most as u64) {
            let last = random.below(objects.len() as u64) as usize;
            objects.swap_remove(last).free(&cache);
        }
        exhaust(&cache, &mut objects);
        assert_eq!(objects.len(), most);
        objects.iter_mut().for_each(|object| assert!(object.is_whole()));
    }
    drop(limit);
    objects.extend(some(&cache, 1 << 32, 3_000));
    free_all(&cache, objects);
    use_it(&cache);
    close(cache);
}

/// Objects that are free in their slabs can be had where there is no memory for an array of them.
fn no_memory_for_sheaves() {
    pin::pin(0);
    // More than are made at once of the largest sheaves, which small objects have from the start.
    const COUNT: u64 = 100 * 252;
    let (cache, other) = (cache_of(8), cache_of(8));
    let mut objects = Vec::with_capacity(COUNT as usize);
    objects.extend(some(&cache, 0, COUNT));
    let mut others = some(&other, 0, COUNT);
    let limit = limits::limit_data(0);
    // They keep all sheaves that there are.
    others.drain(..).for_each(|object| object.free(&other));
    objects.drain(..).for_each(|object| object.free(&cache));
    // From another lane, which has no sheaf. What this one has stays there.
    probe::leave_lanes();
    objects.extend((0..COUNT).map_while(|number| Object::alloc(&cache, 1 << 32 | number)));
    drop(limit);
    let in_lane = 1 + 2 * 252;
    assert!(objects.len() as u64 >= COUNT - in_lane, "only {} can be had", objects.len());
    free_all(&cache, objects);
    close(cache);
    close(other);
    // Not before: what it has is room under the limit.
    drop(others);
}

/// A cache that was first used when there was no memory for lanes has them later.
fn lanes_once_there_is_memory() {
    // They leave what a cache has behind the lanes.
    let many: Vec<RawCache> = [64; 100].map(cache_of).into();
    many.iter().for_each(|cache| free_all(cache, some(cache, 0, 10)));
    many.into_iter().for_each(close);
    let cache = cache_of(64);
    let trades = || {
        let before = cache.stats().trades;
        (0..500).for_each(|number| free_all(&cache, some(&cache, number, 1)));
        cache.stats().trades - before
    };
    let mut items = Vec::with_capacity(1 << 20);
    let limits = (limits::limit_data(0), limits::limit_address_space_to(0));
    while let Ok(item) = PerCpu::<u64>::try_new() {
        assert!(items.len() < items.capacity(), "there is no limit");
        items.push(item);
    }
    let without = trades();
    drop((limits, items));
    assert!(without >= 500, "only {without} trades without lanes");
    trades();
    let with = trades();
    assert!(with < 50, "{with} trades with lanes");
    close(cache);
}

/// What was set aside is there where nothing else is.
fn reserved_are_there() {
    let (cache, typed) = (cache_of(5_000), Cache::<[u64; 700]>::new());
    let mut reserve = cache.reserve(2_000).expect("there is memory");
    let mut values = typed.reserve(300).expect("there is memory");
    let mut objects = Vec::with_capacity(100_000);
    let mut kept = Vec::with_capacity(300);
    let limits = (limits::limit_data(0), limits::limit_address_space());
    exhaust(&cache, &mut objects);
    for number in 0..2_000 {
        let object = reserve.alloc().expect("it was set aside");
        objects.push(Object::fill(&cache, object, 1 << 32 | number));
    }
    while let Ok(value) = values.alloc([kept.len() as u64; 700]) {
        kept.push(value);
    }
    assert!((0..).zip(&kept).all(|(n, value)| **value == [n; 700]) && kept.len() == 300);
    assert_eq!(cache.alloc(), None);
    drop(limits);
    drop((reserve, values, kept));
    free_all(&cache, objects);
    typed.close().expect("nothing is out");
    close(cache);
}

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

//! Slab caches where there is little memory, or none.

use thiscpu::{Cache, Error, PerCpu, RawCache, probe};

use crate::common::objects::{Object, cache_of, close, free_all, some};
use crate::common::random::Random;
use crate::common::threads::together;
use crate::common::{ALL, Scenario, limits, pin};

pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario::new("slab::no_memory_at_first", &ALL, no_memory_at_first),
    Scenario::new("slab::nothing_is_reserved", &ALL, nothing_is_reserved),
    Scenario::new("slab::little_address_space", &ALL, little_address_space),
    Scenario::new("slab::others_in_the_way", &ALL, others_in_the_way),
    Scenario::new("slab::no_memory_later", &ALL, no_memory_later),
    Scenario::new("slab::no_memory_for_sheaves", &ALL, no_memory_for_sheaves),
    Scenario::new("slab::lanes_once_there_is_memory", &ALL, lanes_once_there_is_memory),
    Scenario::new("slab::reserved_are_there", &ALL, reserved_are_there),
];

const MIB: i64 = 1 << 20;

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

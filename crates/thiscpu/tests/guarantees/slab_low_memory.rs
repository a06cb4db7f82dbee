//! Slab caches with little memory, or none.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use thiscpu::__internal::{large, purge};
use thiscpu::{__test_support, Cache, Error, PerCpu, RawCache};

use crate::common::{
    Object, Random, Scenario, SetOnDrop, TIERS, alloc_many, cache_of, close, exhaust, free_all,
    pin, resources, scale, scenario, together,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(slab::failed_first_alloc_does_no_harm, TIERS),
    scenario!(slab::address_space_grows_with_use, TIERS).slow(),
    scenario!(slab::first_use_fits_in_100_mib_of_address_space, TIERS).not_quick(),
    scenario!(slab::first_use_fits_in_100_mib_of_data, TIERS).not_quick(),
    scenario!(slab::first_use_fits_in_8_mib_of_address_space, TIERS),
    scenario!(slab::first_use_fits_in_8_mib_of_data, TIERS),
    scenario!(slab::small_address_space_is_fully_usable, TIERS).slow(),
    scenario!(slab::freed_objects_stay_readable_in_limited_address_space, TIERS),
    scenario!(slab::freed_objects_stay_readable_in_limited_data, TIERS),
    scenario!(slab::freed_objects_stay_readable_when_large_blocks_grow, TIERS),
    scenario!(slab::arena_skips_foreign_mappings, TIERS).not_quick(),
    scenario!(slab::large_blocks_skip_foreign_mappings, TIERS),
    scenario!(slab::failed_large_alloc_keeps_no_address_space, TIERS),
    scenario!(slab::free_chunks_stay_available_during_purge, TIERS).not_quick(),
    scenario!(slab::freed_objects_are_reused_when_memory_ends, TIERS).not_quick(),
    scenario!(slab::slab_objects_are_found_without_new_sheaves, TIERS).slow(),
    scenario!(slab::lanes_are_made_once_memory_returns, TIERS),
    scenario!(slab::lanes_are_returned_when_backend_fails, TIERS),
    scenario!(slab::prefilled_objects_survive_exhaustion, TIERS),
];

const MIB: i64 = 1 << 20;

/// Uses a cache on several threads.
fn use_cache(cache: &RawCache) {
    together(3, |thread| free_all(cache, alloc_many(cache, (thread as u64) << 32, 900)));
}

// Calls that find no memory do no harm; once there is memory, all works.
fn failed_first_alloc_does_no_harm() {
    let (cache, typed) = (cache_of(640), Cache::<[u64; 80]>::new());
    for n in 1..4 {
        let _limit = resources::limit_address_space();
        let before = resources::status_bytes("VmSize");
        assert_eq!(cache.alloc(), None);
        let expected = Error::NoMemory { objects: n, bytes: 640 };
        let error = cache.prefill(n).map(drop).expect_err("there is no memory");
        assert_eq!(error, expected);
        let text = error.to_string();
        assert!(text.contains("640 bytes: no memory; raise the limit"), "{text}");
        assert_eq!(typed.prefill(n).map(drop), Err(expected));
        // The first round may find memory for metadata.
        let growth = resources::status_bytes("VmSize") - before;
        assert!(n == 1 || growth == 0, "{growth} useless bytes stay mapped");
    }
    use_cache(&cache);
    let values: Vec<_> = (0..500).map(|n| typed.alloc([n; 80])).collect();
    assert!((0..).zip(&values).all(|(n, value)| **value == [n; 80]));
    drop(values);
    typed.close().expect("no object is in use");
    close(cache);
}

// The arena grows with use, and by little more; only the tags are reserved in advance.
fn address_space_grows_with_use() {
    const TAGS: i64 = 64 * MIB;
    // Lanes reserve address space too, and first.
    let _lanes = PerCpu::<u64>::try_new().expect("memory");
    let cache = cache_of(10_000);
    let mut before = resources::status_bytes("VmSize");
    let mut objects = Vec::with_capacity(30_000);
    objects.extend(Object::alloc(&cache, 0));
    let first = resources::status_bytes("VmSize") - before;
    assert!((TAGS - MIB..TAGS + 8 * MIB).contains(&first), "1 object: grew by {first} bytes");
    before += TAGS;
    for (count, most) in [(100, 8), (10_000, 120), (20_000, 230)] {
        let allocated = objects.len() as u64;
        objects.extend(alloc_many(&cache, allocated, count - allocated));
        let growth = resources::status_bytes("VmSize") - before;
        assert!(growth < most * MIB, "{count} objects: grew by {growth} bytes");
    }
    free_all(&cache, objects);
    close(cache);
}

/// Asserts that a limit with `room` bytes leaves a process more than `least` for objects.
///
/// The process has not used a cache before.
fn assert_first_use_fits(limit: fn(u64) -> resources::LimitGuard, room: i64, least: i64) {
    // Lanes, which are reserved, and the list do not count.
    let _lanes = PerCpu::<u64>::try_new().expect("memory");
    let (cache, mut objects) = (cache_of(4_096), Vec::with_capacity(30_000));
    let limit = limit(room as u64);
    exhaust(&cache, &mut objects);
    drop(limit);
    let bytes = objects.len() as i64 * 4_096;
    free_all(&cache, objects);
    close(cache);
    assert!(bytes > least, "{bytes} bytes");
}

// The first use leaves most of a small address space to objects.
fn first_use_fits_in_100_mib_of_address_space() {
    assert_first_use_fits(resources::limit_address_space_to, 100 * MIB, 92 * MIB);
}

// The first use leaves most of little writable memory to objects.
fn first_use_fits_in_100_mib_of_data() {
    assert_first_use_fits(resources::limit_data, 100 * MIB, 92 * MIB);
}

// The first use works in 8 MiB of address space.
fn first_use_fits_in_8_mib_of_address_space() {
    assert_first_use_fits(resources::limit_address_space_to, 8 * MIB, 4 * MIB);
}

// The first use works in 8 MiB of writable memory.
fn first_use_fits_in_8_mib_of_data() {
    assert_first_use_fits(resources::limit_data, 8 * MIB, 4 * MIB);
}

// A process can use nearly all of a small address space, repeatedly.
fn small_address_space_is_fully_usable() {
    // Metadata of slabs takes a sixtieth. The arena grows by a sixteenth, if that much is left: its
    // last whole step ends at 97 MiB.
    const ROOM: i64 = 103 * MIB;
    let cache = cache_of(4_096);
    let mut objects = Vec::with_capacity(200_000);
    objects.extend(Object::alloc(&cache, 0));
    let limit = resources::limit_address_space_to(ROOM as u64);
    for _ in 0..3 {
        exhaust(&cache, &mut objects);
        let bytes = objects.len() as i64 * 4_096;
        assert!((ROOM - 4 * MIB..ROOM + MIB).contains(&bytes), "{bytes} bytes");
        assert_eq!(cache.alloc(), None);
        objects.iter_mut().for_each(|object| assert!(object.is_intact()));
        objects.drain(..).for_each(|object| object.free(&cache));
    }
    drop(limit);
    use_cache(&cache);
    close(cache);
}

// A late read of a freed object does not fault, although large blocks are unmapped.
fn freed_objects_stay_readable_in_limited_address_space() {
    freed_objects_stay_readable(resources::limit_address_space_to);
}

fn freed_objects_stay_readable_in_limited_data() {
    freed_objects_stay_readable(resources::limit_data);
}

fn freed_objects_stay_readable<L>(limit: fn(u64) -> L) {
    let cache = cache_of(5_000);
    let mut objects = Vec::with_capacity(50_000);
    objects.extend(Object::alloc(&cache, 0));
    let (mut blocks, mut addresses) = (Vec::with_capacity(90), Vec::with_capacity(50_000));
    let limit = limit(200 * MIB as u64);
    blocks.extend((0..90).map_while(|_| large::allocate(1 << 20, 1)));
    exhaust(&cache, &mut objects);
    addresses.extend(objects.iter().map(Object::address));
    assert!(blocks.len() == 90 && addresses.len() > 10_000, "{}", addresses.len());
    objects.drain(..).for_each(|object| object.free(&cache));
    cache.shrink();
    let before = resources::status_bytes("VmSize");
    blocks.into_iter().for_each(|block| assert!(large::free(block)));
    let unmapped = before - resources::status_bytes("VmSize");
    assert!(unmapped > 50 * MIB, "only {unmapped} bytes were unmapped");
    for address in addresses {
        // SAFETY: an address of a freed object stays readable, which this test is about.
        unsafe { (address as *const u64).read_volatile() };
    }
    drop(limit);
    close(cache);
}

// A late read of a freed object does not fault after a large block got its memory and grew.
fn freed_objects_stay_readable_when_large_blocks_grow() {
    const BYTES: usize = 4 << 20;
    let cache = cache_of(5_000);
    let objects = alloc_many(&cache, 0, 1_000);
    let addresses: Vec<_> = objects.iter().map(Object::address).collect();
    free_all(&cache, objects);
    cache.shrink();
    let [block, behind] = [1, 1].map(|align| large::allocate(BYTES, align).expect("memory"));
    assert_eq!(behind, block + BYTES, "the block can grow in place");
    assert!(addresses.iter().any(|address| (block..behind).contains(address)));
    _ = large::resize(block, 2 * BYTES, 1);
    for address in addresses {
        // SAFETY: an address of a freed object stays readable, which this test is about.
        unsafe { (address as *const u64).read_volatile() };
    }
    close(cache);
}

// The arena continues behind foreign mappings, and leaves them alone.
fn arena_skips_foreign_mappings() {
    const PAGE: usize = 65_536;
    let cache = cache_of(10_000);
    let mut objects = alloc_many(&cache, 0, 10);
    let base = objects[0].address() & !(PAGE - 1);
    let others: Vec<usize> = [3, 5, 9, 40, 41, 90]
        .map(|mib| base + (mib << 20))
        .into_iter()
        .filter(|&address| map_at(address, PAGE))
        .collect();
    assert!(others.len() > 3, "{} mappings", others.len());
    objects.extend(alloc_many(&cache, 10, 12_000));
    let last = objects.iter().map(Object::address).max();
    assert!(last > others.last().copied(), "the arena ends before the last mapping");
    for object in &objects {
        let address = object.address();
        assert!(others.iter().all(|&other| address + 10_000 <= other || other + PAGE <= address));
    }
    for &other in &others {
        // SAFETY: this function has mapped the page and is its only user.
        let page = unsafe { std::slice::from_raw_parts(other as *const u8, PAGE) };
        assert!(page.iter().all(|&byte| byte == 0));
    }
    free_all(&cache, objects);
    use_cache(&cache);
    cache.shrink();
    close(cache);
}

// Blocks above 1 GiB continue behind foreign mappings too.
fn large_blocks_skip_foreign_mappings() {
    const BYTES: usize = (1 << 30) + 1;
    let cache = cache_of(10_000);
    let objects = alloc_many(&cache, 0, 10);
    let base = objects[0].address() & !((1 << 20) - 1);
    let other = base + (40 << 20);
    assert!(map_at(other, 65_536), "another mapping is in the way");
    for _ in 0..2 {
        let block = large::allocate(BYTES, 1).expect("address space");
        assert!(block > other || block + BYTES <= other);
        let [first, last] = [0, BYTES - 1].map(|at| (block + at) as *mut u8);
        // SAFETY: both addresses are in the block, which only this function uses.
        unsafe {
            first.write(1);
            last.write(2);
            assert_eq!((first.read(), last.read()), (1, 2));
        }
        assert!(large::free(block));
    }
    // The chunks before the mapping are still used.
    assert!(large::allocate(30 << 20, 1).is_some_and(|block| block < other));
    free_all(&cache, objects);
    close(cache);
}

// A large allocation that finds no room behind a foreign mapping keeps no address space.
fn failed_large_alloc_keeps_no_address_space() {
    const GIB: usize = 1 << 30;
    let cache = cache_of(10_000);
    let objects = alloc_many(&cache, 0, 10);
    let base = objects[0].address() & !((1 << 20) - 1);
    let assert_fails = |bytes: usize, room: i64| {
        let _limit = resources::limit_address_space_to(room as u64);
        for _ in 0..3 {
            let before = resources::status_bytes("VmSize");
            assert_eq!(large::allocate(bytes, 1), None);
            let growth = resources::status_bytes("VmSize") - before;
            assert!(growth <= 0, "{growth} useless bytes stay mapped, of {room}");
        }
    };
    // This mapping is farther away than the arena skips.
    assert!(map_at(base + GIB + GIB / 2, 65_536), "another mapping is in the way");
    assert_fails(2 * GIB, 5 << 30);
    assert!(map_at(base + (900 << 20), 65_536), "another mapping is in the way");
    // Too little for the gap before the mapping, for the block, and for both.
    for room in [500, 950, 1_500] {
        assert_fails(GIB, room * MIB);
    }
    let block = large::allocate(GIB, 1).expect("address space");
    assert!(block > base + (900 << 20) && large::free(block));
    free_all(&cache, objects);
    use_cache(&cache);
    close(cache);
}

/// Maps pages at an address; returns false if another mapping is there.
fn map_at(address: usize, bytes: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: MAP_FIXED_NOREPLACE replaces no mapping, and the new one is never unmapped.
    unsafe { libc::mmap(address as *mut _, bytes, access, flags, -1, 0) as usize == address }
}

// Free chunks stay available, without new address space, while another thread purges them.
fn free_chunks_stay_available_during_purge() {
    const BYTES: usize = 24 << 20;
    let allocate = || large::allocate(BYTES, 1);
    assert!(large::free(allocate().expect("memory")));
    let (begun, over) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|threads| {
        let _over = SetOnDrop(&over);
        threads.spawn(|| {
            while !over.load(SeqCst) {
                purge();
                begun.store(true, SeqCst);
            }
        });
        while !begun.load(SeqCst) {
            std::thread::yield_now();
        }
        let _limit = resources::limit_address_space_to(0);
        for round in 0..scale::rounds(300) {
            let block = allocate().unwrap_or_else(|| panic!("no free chunks in round {round}"));
            for page in (block..block + BYTES).step_by(4096) {
                // SAFETY: the address is in the block, which only this function uses.
                unsafe { (page as *mut u8).write(1) };
            }
            assert!(large::free(block));
        }
    });
}

// When memory has run out, objects still have one owner, and freed ones are allocated again.
fn freed_objects_are_reused_when_memory_ends() {
    pin::pin(0);
    let (cache, mut random) = (cache_of(5_000), Random::new(1));
    let mut objects = Vec::with_capacity(100_000);
    objects.extend(Object::alloc(&cache, 0));
    let limit = resources::limit_data(20 * MIB as u64);
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
        objects.iter_mut().for_each(|object| assert!(object.is_intact()));
    }
    drop(limit);
    objects.extend(alloc_many(&cache, 1 << 32, 3_000));
    free_all(&cache, objects);
    use_cache(&cache);
    close(cache);
}

// Objects that are free in slabs can be allocated without memory for a new sheaf.
fn slab_objects_are_found_without_new_sheaves() {
    pin::pin(0);
    // More than one batch of new sheaves holds.
    const COUNT: u64 = 40 * 1020;
    let (cache, other) = (cache_of(8), cache_of(8));
    let mut objects = Vec::with_capacity(COUNT as usize);
    objects.extend(alloc_many(&cache, 0, COUNT));
    let mut others = alloc_many(&other, 0, COUNT);
    let limit = resources::limit_data(0);
    // The other cache keeps all sheaves.
    others.drain(..).for_each(|object| object.free(&other));
    objects.drain(..).for_each(|object| object.free(&cache));
    // The shared lane has no sheaf. This CPU's lane keeps its objects.
    __test_support::leave_lanes();
    objects.extend((0..COUNT).map_while(|number| Object::alloc(&cache, 1 << 32 | number)));
    drop(limit);
    let in_lane = 1 + 2 * 1020;
    assert!(objects.len() as u64 >= COUNT - in_lane, "only {} were found", objects.len());
    free_all(&cache, objects);
    close(cache);
    close(other);
    // Dropped only now, because its memory would have been room under the limit.
    drop(others);
}

// A cache whose first use found no memory for lanes gets them later.
fn lanes_are_made_once_memory_returns() {
    // These caches leave memory for other caches' backends.
    let many: Vec<RawCache> = [64; 100].map(cache_of).into();
    many.iter().for_each(|cache| free_all(cache, alloc_many(cache, 0, 10)));
    many.into_iter().for_each(close);
    let cache = cache_of(64);
    let trades = || {
        let before = cache.stats().trades;
        (0..500).for_each(|number| free_all(&cache, alloc_many(&cache, number, 1)));
        cache.stats().trades - before
    };
    let mut items = Vec::with_capacity(1 << 20);
    let limits = (resources::limit_data(0), resources::limit_address_space_to(0));
    while let Ok(item) = PerCpu::<u64>::try_new() {
        assert!(items.len() < items.capacity(), "memory has no limit");
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

// A cache that finds memory for lanes but not for its backend returns the lanes.
fn lanes_are_returned_when_backend_fails() {
    let mut items = Vec::with_capacity(1 << 20);
    items.extend(PerCpu::<u64>::try_new());
    let all = [64; 200].map(cache_of);
    let limits = (resources::limit_data(0), resources::limit_address_space_to(0));
    // These caches use up the memory that is left for backends.
    assert!(all.iter().all(|cache| cache.alloc().is_none()));
    let mut room = || {
        while let Ok(item) = PerCpu::<u64>::try_new() {
            assert!(items.len() < items.capacity(), "memory has no limit");
            items.push(item);
        }
        let count = items.len();
        items.clear();
        count
    };
    let before = room();
    for _ in 0..100 {
        assert_eq!(cache_of(64).alloc(), None);
    }
    let after = room();
    drop(limits);
    assert!(before > 500 && after == before, "room for {before} items, then for {after}");
    all.into_iter().for_each(close);
}

// Prefilled objects are available when memory has run out.
fn prefilled_objects_survive_exhaustion() {
    let (cache, typed) = (cache_of(5_000), Cache::<[u64; 700]>::new());
    let mut prefilled = cache.prefill(2_000).expect("memory");
    let mut values = typed.prefill(300).expect("memory");
    let mut objects = Vec::with_capacity(100_000);
    let mut kept = Vec::with_capacity(300);
    let limits = (resources::limit_data(0), resources::limit_address_space());
    exhaust(&cache, &mut objects);
    for number in 0..2_000 {
        let object = prefilled.alloc().expect("a prefilled object");
        objects.push(Object::fill(&cache, object, 1 << 32 | number));
    }
    while let Ok(value) = values.alloc([kept.len() as u64; 700]) {
        kept.push(value);
    }
    assert!((0..).zip(&kept).all(|(n, value)| **value == [n; 700]) && kept.len() == 300);
    assert_eq!(cache.alloc(), None);
    drop(limits);
    drop((prefilled, values, kept));
    free_all(&cache, objects);
    typed.close().expect("no object is in use");
    close(cache);
}

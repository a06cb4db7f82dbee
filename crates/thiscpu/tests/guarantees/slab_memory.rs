//! Slab caches: the memory that they take from the system and return.

use std::alloc::Layout;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use thiscpu::__internal::{CELL_BYTES, Class, Fence, Group, Handle, Window};
use thiscpu::{__test_support, Cache, ConstructedCache, RawCache};

use crate::common::{
    CID_AND_ATOMIC, Object, Random, Scenario, TIERS, WITH_SECTIONS, alloc_many, at_sampled_steps,
    cache_of, can_single_step, close, free_all, pin, resources, scale, scenario, together,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(slab::shrink_returns_pages, TIERS).not_quick(),
    scenario!(slab::bulk_free_returns_pages, TIERS).slow(),
    scenario!(slab::idle_barn_objects_return_to_slabs, TIERS).slow(),
    scenario!(slab::shuffled_objects_are_reallocated_in_order, CID_AND_ATOMIC),
    scenario!(slab::constructed_values_survive_shuffled_frees, CID_AND_ATOMIC),
    scenario!(slab::cache_works_when_memory_is_locked, TIERS).needs(resources::can_lock_all),
    scenario!(slab::protected_pages_stay_protected, TIERS),
    scenario!(slab::free_uses_lane_while_another_class_shrinks, CID_AND_ATOMIC)
        .needs(can_single_step)
        .slow(),
    scenario!(slab::group_shrink_needs_one_fence, WITH_SECTIONS),
    scenario!(slab::closed_caches_return_pages, TIERS),
    scenario!(slab::close_is_safe_during_last_free, TIERS),
];

const MIB: i64 = 1 << 20;

/// Allocates objects and touches all their pages, on the first CPU or on all CPUs in turn.
fn alloc_touched(cache: &RawCache, objects: &mut Vec<Object>, count: u64, is_spread: bool) {
    for number in 0..count {
        if number % 5_000 == 0 {
            pin::pin(if is_spread { number as usize / 5_000 } else { 0 });
        }
        objects.extend(Object::alloc(cache, number));
    }
    assert_eq!(objects.len() as u64, count);
}

// Objects that were freed in random order are allocated in address order.
//
// Exceptions are the lane's objects and 1 MiB of others.
fn shuffled_objects_are_reallocated_in_order() {
    const COUNT: u64 = 100_000;
    pin::pin(0);
    let (cache, mut random) = (cache_of(48), Random::new(5));
    let mut objects = alloc_many(&cache, 0, COUNT);
    shuffle(&mut objects, &mut random);
    free_all(&cache, objects);
    let objects = alloc_many(&cache, COUNT, COUNT);
    let is_near = |pair: &&[Object]| pair[0].address().abs_diff(pair[1].address()) <= 65_536;
    let near = objects.windows(2).filter(is_near).count() as u64;
    assert!(near > COUNT * 7 / 10, "{near} of {COUNT} are near the one before");
    free_all(&cache, objects);
    close(cache);
}

// Freeing values in random order destroys none of them.
fn constructed_values_survive_shuffled_frees() {
    // As many as a barn keeps.
    const COUNT: usize = 4_500;
    static MADE: AtomicUsize = AtomicUsize::new(0);
    pin::pin(0);
    let make = || {
        MADE.fetch_add(1, Relaxed);
        [0_u64; 400]
    };
    let cache: ConstructedCache<[u64; 400]> = ConstructedCache::new(make);
    let mut random = Random::new(6);
    for _ in 0..3 {
        let mut values: Vec<_> = (0..COUNT).map(|_| cache.alloc()).collect();
        shuffle(&mut values, &mut random);
    }
    let made = MADE.load(Relaxed);
    assert!(made < COUNT + 100, "{made} values were made for {COUNT}");
    cache.close().expect("no object is in use");
}

fn shuffle<T>(all: &mut [T], random: &mut Random) {
    for left in (1..all.len()).rev() {
        all.swap(left, random.below(left as u64 + 1) as usize);
    }
}

// Shrinking several classes of a group takes one fence, and none if their lanes are empty.
//
// The other classes keep their objects.
fn group_shrink_needs_one_fence() {
    static GROUP: Group = Group::new(1 + 4);
    static CLASSES: [Class; 4] = [const { Class::new(48, 8, 1) }; 4];
    let class = |number: usize| GROUP.handle(&CLASSES[number], (1 + number) * CELL_BYTES);
    let out = || CLASSES.each_ref().map(|class| class.stats().objects_outside_slabs);
    // The last class is never used.
    for number in 0..3 {
        let object = class(number).alloc_or(|| class(number).alloc_slow()).unwrap();
        // SAFETY: the object was just allocated from this class, and no other code has it.
        unsafe { class(number).free_or(object, || class(number).free_slow(object)) };
    }
    let before = out();
    assert!(before[..3].iter().all(|&out| out > 0), "{before:?}");
    let all_but_0 = |number: usize| -> Option<Handle<'_>> { (number != 0).then(|| class(number)) };
    let begun = __test_support::fences();
    GROUP.shrink::<_, 4>(all_but_0, Fence::Any);
    assert_eq!(out(), [before[0], 0, 0, 0]);
    assert_eq!(__test_support::fences(), begun + 1);
    GROUP.shrink::<_, 4>(all_but_0, Fence::Any);
    assert_eq!(__test_support::fences(), begun + 1);
    // The lane's objects return to slabs by way of a barn.
    GROUP.flush_lanes_to_barns::<_, 4>(|number| Some(class(number)), Fence::Membarrier);
    assert_eq!(CLASSES[0].stats().objects_in_barns, before[0]);
    class(0).begin_window(Window::Short);
    assert_eq!(class(0).unused_bytes(Window::Short), before[0] * 48);
    while class(0).flush_unused(Window::Short) > 0 {}
    assert_eq!(out(), [0; 4]);
}

fn resident() -> i64 {
    resources::status_bytes("RssAnon")
}

// A shrink returns all pages but those of objects in use.
fn shrink_returns_pages() {
    const COUNT: u64 = 64 << 10;
    let cache = cache_of(1_000);
    let mut objects = Vec::with_capacity(COUNT as usize);
    free_all(&cache, alloc_many(&cache, 0, 10));
    cache.shrink();
    let before = resident();
    for kept in [0, 100, 3_000] {
        alloc_touched(&cache, &mut objects, COUNT, true);
        let growth = resident() - before;
        assert!(growth > 60 * MIB, "grew by {growth} bytes");
        for object in objects.drain(kept..).rev() {
            object.free(&cache);
        }
        // Frees may have returned some of it already, or all.
        cache.shrink();
        let (after, needed) = (resident() - before, kept as i64 * 1_000);
        assert!(after < needed + 5 * MIB, "still {after} bytes, for {needed}");
        free_all(&cache, std::mem::take(&mut objects));
    }
    cache.shrink();
    assert_eq!(cache.stats().slab_bytes, 0);
    close(cache);
}

// Frees return pages without a shrink, in a second of further calls, but for those of a barn, lanes
// and 20 MiB of free chunks.
fn bulk_free_returns_pages() {
    for size in [256, 4_096, 65_536] {
        let cache = cache_of(size);
        let count = 200 * MIB as u64 / size as u64;
        let mut objects = Vec::with_capacity(count as usize);
        // Returns the pages that the previous cache has left.
        cache.shrink();
        let before = resident();
        alloc_touched(&cache, &mut objects, count, false);
        let growth = resident() - before;
        assert!(growth > 180 * MIB, "{size} bytes: grew by {growth} bytes");
        // Freed in address order.
        objects.drain(..).for_each(|object| object.free(&cache));
        // The pages of the list were counted, and a barn keeps 16 MiB.
        let (after, list) = (|| resident() - before, 24 * count as i64);
        for _ in 0..2_000 {
            if after() < list + 40 * MIB {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
            free_all(&cache, alloc_many(&cache, 0, count / 16));
        }
        assert!(after() < list + 40 * MIB, "{size} bytes: still {}", after());
        close(cache);
    }
}

// Objects that stay unused in a barn return to their slabs while other lanes trade.
fn idle_barn_objects_return_to_slabs() {
    let cache = cache_of(1_000);
    let count = 16 * MIB as u64 / 1_000;
    pin::pin(0);
    let objects = alloc_many(&cache, 0, count);
    free_all(&cache, objects);
    let in_barns = || cache.stats().objects_in_barns as u64;
    assert!(in_barns() > count / 2, "only {} of {count} are in barns", in_barns());
    // Few objects are used, on another CPU if there is one, so most stay idle.
    pin::pin(1);
    while in_barns() > count / 8 {
        free_all(&cache, alloc_many(&cache, 0, count / 16));
    }
    close(cache);
}

// If all present and future memory is locked, slabs are locked too, and reused.
//
// Returning memory then does no harm.
fn cache_works_when_memory_is_locked() {
    resources::lock_all().expect("memory can be locked");
    let resident_before = resident();
    let cache = cache_of(10_000);
    let objects = alloc_many(&cache, 0, 10);
    // Read-only memory counts as locked, but is not filled.
    let before = [resident_before, resources::status_bytes("VmLck")];
    let growth = resident() - before[0];
    assert!(growth < 8 * MIB, "grew by {growth} bytes");
    for round in 0..5 {
        free_all(&cache, alloc_many(&cache, 10 * round, 2_000));
        cache.shrink();
    }
    let growth = resident() - before[0];
    assert!(growth < 40 * MIB, "grew by {growth} bytes");
    let locked = resources::status_bytes("VmLck") - before[1];
    assert!(locked > 20 * MIB, "{locked} bytes are locked");
    free_all(&cache, objects);
    close(cache);
}

// Making more of the arena accessible does not change pages that the program has protected.
fn protected_pages_stay_protected() {
    const PAGE: usize = 4096;
    let layout = Layout::from_size_align(4 * PAGE, PAGE).expect("a layout");
    let cache = RawCache::new(layout);
    let object = cache.alloc().expect("memory");
    let page = object.as_ptr().addr() + PAGE;
    let protect = |access| {
        // SAFETY: the page belongs to an object that only this function uses.
        assert_eq!(unsafe { libc::mprotect(page as *mut _, PAGE, access) }, 0);
    };
    protect(libc::PROT_READ);
    // So many that the arena becomes accessible in several more steps.
    let others: Vec<_> = (0..2_000).map(|_| cache.alloc().expect("memory")).collect();
    assert_eq!(resources::access_at(page), "r--p");
    protect(libc::PROT_READ | libc::PROT_WRITE);
    for object in others.into_iter().chain([object]) {
        // SAFETY: each object is from this cache and is not used anymore.
        unsafe { cache.free(object) };
    }
    close(cache);
}

// Frees during a shrink of another class of the group do not end up in the shared lane.
fn free_uses_lane_while_another_class_shrinks() {
    static GROUP: Group = Group::new(1 + 2);
    // The first class has few objects in a sheaf, because each takes many steps.
    static CLASSES: [Class; 2] = [Class::new(40_000, 8, 1), Class::new(96, 8, 2)];
    let [shrinks, other] = [0, 1].map(|n| GROUP.handle(&CLASSES[n], (1 + n) * CELL_BYTES));
    let alloc = |class: Handle<'_>| class.alloc_or(|| class.alloc_slow()).expect("memory");
    let free = |class: Handle<'_>, object| {
        // SAFETY: the callers pass objects of this class, and do not use them afterwards.
        unsafe { class.free_or(object, || class.free_slow(object)) };
    };
    pin::pin(0);
    let check = |steps, _, ()| {
        let without_lane = || {
            __test_support::leave_lanes();
            let before = other.trades();
            let object = alloc(other);
            let is_traded = other.trades() > before;
            free(other, object);
            is_traded
        };
        let is_traded =
            std::thread::scope(|threads| threads.spawn(without_lane).join().expect("no panic"));
        assert!(is_traded, "the shared lane had an object, after {steps}");
        other.shrink();
    };
    let conflict = |_| {
        let objects = [(); 10].map(|()| alloc(other));
        objects.into_iter().for_each(|object| free(other, object));
    };
    // A shrink of a class with empty lanes would close no gate.
    let prepare = || free(shrinks, alloc(shrinks));
    at_sampled_steps(prepare, || shrinks.shrink(), conflict, check);
    shrinks.shrink();
    assert_eq!(CLASSES.each_ref().map(|class| class.stats().objects_outside_slabs), [0, 0]);
}

// Each closed cache leaves its memory to the next.
fn closed_caches_return_pages() {
    let make = |n: u64| {
        let cache = cache_of(8 << (n % 12));
        free_all(&cache, alloc_many(&cache, n, 70));
        close(cache);
        let cache: Cache<u64> = Cache::new();
        assert_eq!(*cache.alloc(n), n);
        cache.close().expect("no object is in use");
    };
    let rounds = scale::rounds(1_000);
    // Each size at least once.
    together(2, |_| (0..(rounds / 4).max(12)).for_each(make));
    let before = [resources::status_bytes("RssAnon"), resources::status_bytes("VmSize")];
    (0..rounds).for_each(make);
    // More caches than a lane has room for.
    let make_small = |n| {
        let cache = cache_of(64);
        free_all(&cache, alloc_many(&cache, n, 1));
        close(cache);
    };
    (0..scale::rounds(12_000)).for_each(make_small);
    let growth = [
        resources::status_bytes("RssAnon") - before[0],
        resources::status_bytes("VmSize") - before[1],
    ];
    assert!(growth.iter().all(|&bytes| bytes < MIB / 2), "grew by {growth:?} bytes");
    assert!(resources::anonymous_mappings() < 60, "{} mappings", resources::anonymous_mappings());
}

// The call that frees the last object may still run when the cache is closed and its memory reused.
fn close_is_safe_during_last_free() {
    for round in 0..scale::rounds(400) {
        let mut cache: Cache<[u64; 8]> = Cache::new();
        let objects: Vec<_> = (0..40).map(|n| cache.alloc([n; 8])).collect();
        std::thread::scope(|threads| {
            threads.spawn(move || {
                if round % 2 == 0 {
                    __test_support::leave_lanes();
                }
                drop(objects);
            });
            while let Err(error) = cache.close() {
                assert_ne!(error.objects, 0);
                cache = error.cache;
            }
            let cache = cache_of(64);
            free_all(&cache, alloc_many(&cache, round, 100));
            close(cache);
        });
    }
}

//! Slab caches: each object is aligned and has one owner, and any thread may free it.

use std::alloc::Layout;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use thiscpu::{__test_support, Cache, RawCache};

use crate::common::destructors::{ROUNDS, arm, end_round, make_key, rounds_run};
use crate::common::{
    Object, Random, Scenario, TIERS, TIERS_AND_SANDBOXES, alloc_many, close, errno, fork, free_all,
    pin, resources, scale, scenario, together, together_while,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(slab::objects_never_overlap, TIERS),
    scenario!(slab::objects_may_be_freed_by_any_thread, TIERS_AND_SANDBOXES),
    scenario!(slab::destructors_may_allocate_and_free, TIERS_AND_SANDBOXES),
    scenario!(slab::close_counts_objects_in_use, TIERS),
    scenario!(slab::dropped_cache_leaves_objects_valid, TIERS),
    scenario!(slab::values_are_dropped_once, TIERS),
    scenario!(slab::panics_leak_no_object, TIERS),
    scenario!(slab::prefilled_objects_are_exclusive, TIERS),
    scenario!(slab::alloc_and_free_keep_errno, TIERS),
];

const MIB: usize = 1 << 20;

fn cache_of(size: usize, align: usize) -> RawCache {
    RawCache::new(Layout::from_size_align(size, align).expect("a layout"))
}

/// Returns sizes from 0 bytes to 1 MiB, with alignments below and above them.
fn layouts() -> impl Iterator<Item = (usize, usize)> {
    let sizes = [0, 1, 8, 9, 24, 64, 100, 1_000, 4_096, 5_000, 40_000, 65_536, 70_000, 300_000];
    let aligns = [1, 8, 16, 64, 4_096, 65_536];
    let all = sizes.into_iter().flat_map(move |size| aligns.map(|align| (size, align)));
    all.chain([(MIB, 1), (MIB, 65_536), (MIB - 1, 8), (MIB / 2 + 1, 32)])
}

// Every byte of every object in use keeps its pattern.
fn objects_never_overlap() {
    for (size, align) in layouts() {
        let cache = cache_of(size, align);
        assert!(cache.object_bytes() >= size.max(8) && cache.object_bytes().is_multiple_of(align));
        // More than a slab has, and more than lanes hold.
        let count = scale::rounds((4 * MIB / cache.object_bytes()).clamp(9, 1_100) as u64);
        let mut objects = alloc_many(&cache, 0, count);
        let is_aligned = |object: &Object| object.address().is_multiple_of(align);
        assert!(objects.iter().all(is_aligned), "{size} bytes, aligned to {align}");
        let mut random = Random::new(size as u64);
        for number in count..2 * count {
            let old = objects.swap_remove(random.below(count) as usize);
            old.free(&cache);
            objects.extend(Object::alloc(&cache, number));
        }
        let addresses: BTreeSet<usize> = objects.iter().map(Object::address).collect();
        assert_eq!(addresses.len() as u64, count, "{size} bytes, aligned to {align}");
        free_all(&cache, objects);
        close(cache);
    }
}

// Objects move between threads with and without lanes while the cache shrinks.
fn objects_may_be_freed_by_any_thread() {
    for size in [8, 200, 3_000, 40_000] {
        let cache = cache_of(size, 8);
        let pool = Mutex::new(Vec::new());
        let work = |thread: usize| {
            match thread {
                0 | 1 => pin::pin(thread),
                4 => __test_support::leave_lanes(),
                _ => {}
            }
            let mut random = Random::new(thread as u64);
            for round in 0..scale::rounds(4_000_000 / (size as u64 + 2_000)) {
                let number = (thread as u64) << 32 | round;
                // Mostly one object each; sometimes many, so whole sheaves are traded.
                let (allocs, frees) = [(1, 1), (1, 1), (60, 0), (0, 80)][random.below(4) as usize];
                let new = alloc_many(&cache, number << 8, allocs);
                pool.lock().expect("no panic").extend(new);
                for _ in 0..frees {
                    let mut pool = pool.lock().expect("no panic");
                    let Some(last) = pool.len().checked_sub(1) else { break };
                    let object: Object = pool.swap_remove(random.below(last as u64 + 1) as usize);
                    drop(pool);
                    object.free(&cache);
                }
            }
        };
        together_while(5, work, || {
            for _ in 0..scale::rounds(100) {
                cache.shrink();
                assert!(cache.stats().slab_bytes.is_multiple_of(65_536));
            }
        });
        free_all(&cache, pool.into_inner().expect("no panic"));
        close(cache);
    }
}

static CACHE: RawCache = RawCache::new(Layout::new::<[u64; 6]>());
static LEFT: Mutex<Vec<Object>> = Mutex::new(Vec::new());

/// Allocates objects for other threads to free, and frees some of others.
fn allocate_and_free() {
    let mut left = LEFT.lock().expect("no panic");
    for _ in 0..40 {
        let number = left.len() as u64;
        left.extend(Object::alloc(&CACHE, number));
        if number > 300 {
            left.swap_remove(number as usize / 3).free(&CACHE);
            left.swap_remove(number as usize / 7).free(&CACHE);
        }
    }
}

struct UsesAtExit;

impl Drop for UsesAtExit {
    fn drop(&mut self) {
        allocate_and_free();
    }
}

thread_local! {
    static EARLY: Cell<Option<UsesAtExit>> = const { Cell::new(None) };
    static LATE: RefCell<Option<UsesAtExit>> = const { RefCell::new(None) };
}

extern "C" fn use_each_round(round: *mut c_void) {
    allocate_and_free();
    end_round(round);
}

// Some threads first use the library there, and some rounds come after a registration has ended.
fn destructors_may_allocate_and_free() {
    make_key(use_each_round);
    let times = scale::rounds(20);
    for _ in 0..times {
        let work = |thread: usize| {
            EARLY.set(Some(UsesAtExit));
            arm(1);
            if thread < 3 {
                allocate_and_free();
            }
            LATE.set(Some(UsesAtExit));
        };
        together(5, work);
    }
    assert_eq!(rounds_run(), times * 5 * ROUNDS);
    // The threads that allocated these have exited.
    free_all(&CACHE, std::mem::take(&mut *LEFT.lock().expect("no panic")));
    CACHE.shrink();
    assert_eq!(CACHE.stats().objects_outside_slabs, 0);
}

// A failed close reports the exact number of objects in use, and leaves the cache usable.
fn close_counts_objects_in_use() {
    let mut cache = cache_of(48, 8);
    let mut objects = alloc_many(&cache, 0, 2_000);
    for left in [1_500, 200, 61, 1] {
        for (cpu, object) in objects.drain(left..).enumerate() {
            pin::pin(cpu / 100);
            object.free(&cache);
        }
        let error = cache.close().expect_err("objects are in use");
        assert_eq!(error.objects, left);
        assert!(error.to_string().contains(&format!(" {left} of its objects are still allocated")));
        cache = error.cache;
        objects.iter_mut().for_each(|object| assert!(object.is_intact()));
        let more = alloc_many(&cache, 10_000, 500);
        free_all(&cache, more);
    }
    free_all(&cache, objects);
    close(cache);
    close(cache_of(1, 1));

    let cache: Cache<[u64; 3]> = Cache::new();
    let (one, other) = (cache.alloc([1; 3]), cache.alloc([2; 3]));
    let error = cache.close().expect_err("objects are in use");
    assert_eq!(error.objects, 2);
    let third = error.cache.alloc([3; 3]);
    assert_eq!((*one, *other, *third), ([1; 3], [2; 3], [3; 3]));
    drop((one, other, third));
    error.cache.close().expect("no object is in use");
}

// Objects in use outlive a dropped cache, and their owners drop them; debug builds warn.
fn dropped_cache_leaves_objects_valid() {
    let stderr_of = |body: fn()| {
        let (status, text) = fork::capture_stderr(body);
        assert_eq!(status, 0, "{text}");
        text
    };
    let text = stderr_of(|| {
        let cache: Cache<[u64; 4]> = Cache::new();
        let objects: Vec<_> = (0..700).map(|n| cache.alloc([n; 4])).collect();
        drop(cache);
        // Another cache reuses free memory, and none of these objects.
        let other: Cache<[u64; 4]> = Cache::new();
        let others: Vec<_> = (0..700).map(|n| other.alloc([!n; 4])).collect();
        let is_right =
            |(n, (one, other)): (u64, (&thiscpu::CacheBox<_>, &thiscpu::CacheBox<_>))| {
                **one == [n; 4] && **other == [!n; 4]
            };
        assert!((0..).zip(objects.iter().zip(&others)).all(is_right));
        drop((objects, others));
    });
    let line = "dropped a cache of 32-byte objects with 700 still allocated; they stay valid";
    assert_eq!(text.contains(line), cfg!(debug_assertions), "{text}");
    let text = stderr_of(|| {
        let cache = cache_of(100, 4);
        let mut object = Object::alloc(&cache, 5).expect("memory");
        drop(cache);
        assert!(object.is_intact());
    });
    assert_eq!(text.contains("with 1 still allocated"), cfg!(debug_assertions), "{text}");
    let text = stderr_of(|| {
        let object = Cache::<u64>::new().alloc(1);
        assert_eq!(*object, 1);
    });
    assert_eq!(text.contains("thiscpu"), cfg!(debug_assertions), "{text}");
    let text = stderr_of(|| {
        let cache: Cache<u64> = Cache::new();
        drop(cache.alloc(1));
    });
    assert_eq!(text, "");
}

/// A value that counts its drops.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn values_are_dropped_once() {
    let dropped = AtomicUsize::new(0);
    let cache: Cache<Counted<'_>> = Cache::new();
    let work = |_| {
        let mut kept = Vec::new();
        for round in 0..scale::rounds(4_000) {
            match round % 4 {
                0 => drop(cache.alloc_with(|| Counted(&dropped))),
                1 => drop(cache.alloc(Counted(&dropped)).into_inner()),
                _ => kept.push(cache.alloc(Counted(&dropped))),
            }
        }
        kept
    };
    let kept: Vec<_> = together(4, work).into_iter().flatten().collect();
    let made = 4 * scale::rounds(4_000) as usize;
    assert_eq!(dropped.load(SeqCst), made - kept.len());
    // On a thread that allocated none of them.
    std::thread::scope(|threads| _ = threads.spawn(move || drop(kept)));
    assert_eq!(dropped.load(SeqCst), made);
    cache.close().expect("no object is in use");

    // Zero-sized values have objects of their own too.
    let cache: Cache<()> = Cache::new();
    let (one, other) = (cache.alloc(()), cache.alloc(()));
    assert!(!std::ptr::eq(&*one, &*other));
    drop((one, other));
    cache.close().expect("no object is in use");
}

struct PanicsAtDrop;

impl Drop for PanicsAtDrop {
    fn drop(&mut self) {
        resume_unwind(Box::new("dropped"));
    }
}

// Panics come while a value is made, and while it is dropped.
fn panics_leak_no_object() {
    let cache: Cache<PanicsAtDrop> = Cache::new();
    for _ in 0..300 {
        let make = || cache.alloc_with(|| resume_unwind(Box::new("made")));
        let panic = catch_unwind(AssertUnwindSafe(make)).map(std::mem::forget);
        assert_eq!(*panic.expect_err("a panic").downcast::<&str>().expect("text"), "made");
        let value = cache.alloc(PanicsAtDrop);
        let panic = catch_unwind(AssertUnwindSafe(|| drop(value)));
        assert_eq!(*panic.expect_err("a panic").downcast::<&str>().expect("text"), "dropped");
    }
    cache.close().expect("no object is in use");
}

// No other call gets prefilled objects, and unused ones go back.
fn prefilled_objects_are_exclusive() {
    let cache = cache_of(72, 8);
    let mut prefilled = cache.prefill(500).expect("memory");
    let others = alloc_many(&cache, 0, 500);
    let mut objects = Vec::new();
    for number in 1_000..1_400 {
        let object = prefilled.alloc().expect("an object");
        objects.push(Object::fill(&cache, object, number));
    }
    assert_eq!((prefilled.len(), prefilled.is_empty()), (100, false));
    free_all(&cache, others);
    free_all(&cache, objects);
    // Another thread frees the rest.
    std::thread::scope(|threads| _ = threads.spawn(move || drop(prefilled)));
    let mut none = cache.prefill(0).expect("no memory is needed");
    assert!(none.is_empty() && none.alloc().is_none());
    drop(none);
    close(cache);

    let cache: Cache<[u64; 9]> = Cache::new();
    let mut prefilled = cache.prefill(3).expect("memory");
    let objects = [1, 2, 3].map(|n| prefilled.alloc([n; 9]).expect("an object"));
    assert_eq!(prefilled.alloc([4; 9]).map(drop), Err([4; 9]));
    assert_eq!(objects.map(|object| object[8]), [1, 2, 3]);
    // An empty prefilled set does not keep the cache open.
    cache.close().expect("no object is in use");
    assert_eq!(
        (prefilled.len(), format!("{prefilled:?}")),
        (0, "Prefilled { len: 0, .. }".to_owned())
    );
    drop(prefilled);
    let cache: Cache<[u64; 9]> = Cache::new();
    let prefilled = cache.prefill(40).expect("memory");
    assert_eq!(cache.close().map_err(|error| (error.objects, drop(prefilled))), Err((40, ())));
}

// Calls that get memory, find none or return it keep errno too.
fn alloc_and_free_keep_errno() {
    for size in [8, 3_000, MIB] {
        let cache = cache_of(size, 8);
        let allocate_and_free = || {
            let objects = [(); 60].map(|()| cache.alloc().expect("memory"));
            let limit = resources::limit_data(0);
            while cache.alloc().is_some() {}
            drop(limit);
            for object in objects {
                // SAFETY: the object is from this cache and is not used anymore.
                unsafe { cache.free(object) };
            }
        };
        assert!(errno::is_kept(allocate_and_free), "{size} bytes");
    }
}

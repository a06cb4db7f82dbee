//! Slab caches in forked children: objects have one owner, and few are lost by the fork.

use std::collections::BTreeSet;
use std::ptr::{self, NonNull};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::SeqCst};

use thiscpu::{__test_support, Cache, RawCache};

use crate::common::{
    CID_AND_ATOMIC, LANES_BY_CPU, Object, Random, Scenario, SetOnDrop, Steps, TIERS, alloc_many,
    cache_of, can_single_step, close, fork, fork_at_steps, free_all, leave_lanes_if, pin, scale,
    scenario, together_while,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(slab::child_loses_little_when_threads_are_busy, TIERS),
    scenario!(slab::child_loses_little_when_threads_shrink, TIERS),
    scenario!(slab::child_uses_its_lane, CID_AND_ATOMIC).needs(can_single_step).not_quick(),
    scenario!(slab::child_loses_little_when_forked_during_alloc, TIERS)
        .needs(can_single_step)
        .not_quick(),
    scenario!(slab::child_loses_little_when_forked_during_free, CID_AND_ATOMIC)
        .needs(can_single_step)
        .slow(),
    scenario!(slab::child_loses_little_when_forked_during_shrink, CID_AND_ATOMIC)
        .needs(can_single_step)
        .not_quick(),
    scenario!(slab::child_loses_little_when_forked_during_takeover, LANES_BY_CPU)
        .needs(can_single_step_on_one_node)
        .not_quick(),
    scenario!(slab::child_loses_little_when_forked_during_first_use, CID_AND_ATOMIC)
        .needs(can_single_step)
        .not_quick(),
];

/// Asserts in a child that the cache works and lost at most `lost` objects.
///
/// The child has the objects `mine` of its parent.
fn assert_consistent_in_child(cache: &RawCache, mine: &mut Vec<Object>, lost: usize) {
    let more = alloc_many(cache, 1 << 40, 30);
    mine.extend(more);
    free_all(cache, std::mem::take(mine));
    free_all(cache, alloc_many(cache, 1 << 41, 60));
    assert_lost(cache, lost);
}

fn assert_lost(cache: &RawCache, most: usize) {
    cache.shrink();
    let stats = cache.stats();
    let out = stats.objects_outside_slabs;
    assert!(out <= most, "{out} objects are lost, not {most} at most");
    assert!(stats.slabs <= out, "{} slabs for {out} objects", stats.slabs);
}

/// The largest number of objects that a busy thread holds.
///
/// Two threads hold more than a lane, so lanes trade all the time.
const HELD: u64 = 300;

/// Forks while other threads allocate and free all the time, and call `disturb`.
///
/// A child loses the objects that these threads hold, and for each thread one more and `in_hand`.
fn children_while(cache: &RawCache, in_hand: usize, disturb: impl Fn() + Sync) {
    const THREADS: usize = 3;
    let over = AtomicBool::new(false);
    let mut mine = alloc_many(cache, 0, 200);
    let work = |thread: usize| {
        leave_lanes_if(thread == 2);
        let (mut random, mut held) = (Random::new(thread as u64), Vec::new());
        while !over.load(SeqCst) {
            for _ in 0..random.below(HELD + 1 - held.len() as u64) {
                let number = (thread as u64 + 1) << 32 | random.below(1 << 30);
                held.extend(Object::alloc(cache, number));
            }
            for _ in 0..random.below(held.len() as u64 + 1) {
                let which = random.below(held.len() as u64) as usize;
                held.swap_remove(which).free(cache);
            }
            disturb();
        }
        free_all(cache, held);
    };
    together_while(THREADS, work, || {
        let _over = SetOnDrop(&over);
        for round in 0..scale::rounds(20) {
            pin::pin(round as usize);
            let child = || {
                assert_consistent_in_child(
                    cache,
                    &mut mine,
                    THREADS * (HELD as usize + 1 + in_hand),
                );
                together_while(
                    3,
                    |_| free_all(cache, alloc_many(cache, 0, 100)),
                    || _ = cache.shrink(),
                );
            };
            fork::run(child).expect("a consistent child");
        }
    });
    free_all(cache, mine);
}

fn child_loses_little_when_threads_are_busy() {
    // The second number is the largest capacity of a sheaf, which frequent trades lead to.
    for (size, sheaf) in [(16, 1020), (2_000, 508), (20_000, 28)] {
        let cache = cache_of(size);
        children_while(&cache, sheaf, || ());
        close(cache);
    }
}

// A thread that shrinks holds the content of all lanes and the shared lane: two sheaves each.
fn child_loses_little_when_threads_shrink() {
    let (cache, typed) = (cache_of(500), Cache::<[u64; 5]>::new());
    let lanes = 2 * 1020 * (pin::cpus().len() + 1);
    let shrinks = AtomicU64::new(0);
    children_while(&cache, lanes, || {
        if shrinks.fetch_add(1, SeqCst).is_multiple_of(16) {
            cache.shrink();
        }
        drop(typed.alloc([1; 5]));
    });
    close(cache);
    typed.close().expect("no object is in use");
}

// A thread that the child lacks may have closed the gate: the child still frees into its own lane.
//
// In the shared lane a thread without a lane would find the object.
fn child_uses_its_lane() {
    let cache = &cache_of(200);
    pin::pin(0);
    let child = || {
        free_all(cache, alloc_many(cache, 0, 1));
        let object = Object::alloc(cache, 1).expect("memory");
        let address = object.address();
        let in_use_or_in_lanes = || {
            let stats = cache.stats();
            stats.objects_outside_slabs - stats.objects_in_barns
        };
        let before = in_use_or_in_lanes();
        object.free(cache);
        assert_eq!(in_use_or_in_lanes(), before, "the object is not in a lane");
        let without_lane = || {
            __test_support::leave_lanes();
            Object::alloc(cache, 2).map(|object| object.address())
        };
        let other =
            std::thread::scope(|threads| threads.spawn(without_lane).join().expect("no panic"));
        assert_ne!(other, Some(address), "the object was in the shared lane");
    };
    let prepare = || free_all(cache, alloc_many(cache, 0, 1));
    fork_at_steps(Steps::Sampled, prepare, || cache.shrink(), child, |_| ());
}

/// A size with sheaves of 4 objects, even after frequent trades.
///
/// A slab has 8 objects in 12 chunks.
const LARGE: usize = 96_000;
const SHEAF: usize = 4;

/// Objects with a pattern in their first and last word only, because these tests use many.
#[derive(Debug)]
struct Few(Vec<NonNull<[usize; LARGE / 8]>>);

// SAFETY: the objects have one owner, this value, so they may be used on any one thread.
unsafe impl Send for Few {}

impl Few {
    fn alloc(cache: &RawCache, count: usize) -> Few {
        let one = |_| {
            let mut object = cache.alloc().expect("memory").cast::<[usize; LARGE / 8]>();
            let address = object.addr().get();
            // SAFETY: the object is new, so this is the only reference. Its memory is initialized:
            // it is zero or was written before.
            let words = unsafe { object.as_mut() };
            assert_eq!(words[0], 0);
            (words[0], words[LARGE / 8 - 1]) = (address, !address);
            object
        };
        Few((0..count).map(one).collect())
    }

    fn free(&mut self, cache: &RawCache) {
        let mut seen = BTreeSet::new();
        for object in &self.0 {
            let address = object.addr().get();
            // SAFETY: this value owns the object, which `alloc` has initialized.
            let words = unsafe { object.as_ref() };
            assert_eq!((words[0], words[LARGE / 8 - 1]), (address, !address));
            assert!(seen.insert(address), "{address:#x} is allocated twice");
        }
        for object in self.0.drain(..) {
            // SAFETY: the object is from this cache and is not used anymore.
            unsafe { cache.free(object.cast()) };
        }
    }
}

/// Forks at each step of `op`, on a cache with objects in use; a child loses `lost` at most.
fn fork_during<R>(
    cache: &RawCache,
    lost: usize,
    prepare: impl Fn(),
    op: impl Fn() -> R,
    end: impl Fn(R),
) {
    pin::pin(0);
    let mine = Mutex::new(Few::alloc(cache, 5));
    let child = || {
        let mut mine = mine.lock().expect("no panic");
        mine.0.extend(Few::alloc(cache, 15).0);
        mine.free(cache);
        assert_lost(cache, lost);
    };
    let check = |result| {
        end(result);
        cache.shrink();
        assert_eq!(cache.stats().objects_outside_slabs, 5);
    };
    fork_at_steps(Steps::Sampled, prepare, op, child, check);
    mine.lock().expect("no panic").free(cache);
}

fn free(cache: &RawCache, object: NonNull<u8>) {
    // SAFETY: the callers pass objects of this cache, and do not use them afterwards.
    unsafe { cache.free(object) };
}

// The allocation fills its sheaf from a new slab.
fn child_loses_little_when_forked_during_alloc() {
    let cache = &cache_of(LARGE);
    let filler = Mutex::new(Few(Vec::new()));
    // Uses up the slab of the five objects, which has three more.
    let fill = || *filler.lock().expect("no panic") = Few::alloc(cache, 3);
    let alloc = || cache.alloc().expect("memory");
    let end = |object| {
        free(cache, object);
        filler.lock().expect("no panic").free(cache);
    };
    // The child loses a sheaf, the object and the three.
    fork_during(cache, SHEAF + 1 + 3, fill, alloc, end);
}

// So many frees that the lane trades sheaves with its barn.
fn child_loses_little_when_forked_during_free() {
    const COUNT: usize = 2 * SHEAF + 2;
    let cache = &cache_of(LARGE);
    let objects = Mutex::new(Few(Vec::new()));
    let prepare = || *objects.lock().expect("no panic") = Few::alloc(cache, COUNT);
    // Kept simple, because each of its instructions is a step.
    let free_all = || {
        let objects = std::mem::take(&mut objects.lock().expect("no panic").0);
        objects.iter().for_each(|object| free(cache, object.cast()));
    };
    fork_during(cache, COUNT + SHEAF, prepare, free_all, |()| ());
}

fn can_single_step_on_one_node() -> Result<(), String> {
    can_single_step().and_then(|()| pin::two_same_node_cpus())
}

// The allocation fills its sheaf from a partial slab of another CPU's barn.
fn child_loses_little_when_forked_during_takeover() {
    let [one, other] = pin::same_node_cpus().expect("two CPUs of a node");
    let cache = &cache_of(LARGE);
    let kept = Mutex::new(Few(Vec::new()));
    let prepare = || {
        pin::pin(one);
        let (mut few, mut rest) = (Few(Vec::new()), Few(Vec::new()));
        for (number, object) in Few::alloc(cache, 24).0.into_iter().enumerate() {
            if number % 8 == 0 { &mut few } else { &mut rest }.0.push(object);
        }
        rest.free(cache);
        cache.shrink();
        *kept.lock().expect("no panic") = few;
        pin::pin(other);
    };
    let alloc = || {
        let slabs = cache.stats().slabs;
        (cache.alloc().expect("memory"), slabs)
    };
    let end = |(object, slabs)| {
        assert_eq!(cache.stats().slabs, slabs, "a new slab");
        free(cache, object);
        kept.lock().expect("no panic").free(cache);
    };
    // The child loses a sheaf, the object and the kept ones.
    fork_during(cache, SHEAF + 1 + 3, prepare, alloc, end);
}

// A shrink holds the lanes' objects for a while; a child loses them.
fn child_loses_little_when_forked_during_shrink() {
    let cache = &cache_of(LARGE);
    let prepare = || Few::alloc(cache, 3 * SHEAF).free(cache);
    fork_during(cache, 4 * SHEAF, prepare, || cache.shrink(), |_| ());
}

// The child finds a cache that may have been used, or not.
fn child_loses_little_when_forked_during_first_use() {
    // The process's first use of any cache would take too many steps.
    let other = cache_of(LARGE);
    Few::alloc(&other, 1).free(&other);
    close(other);
    let current = AtomicPtr::new(ptr::null_mut::<RawCache>());
    // SAFETY: `prepare`, which runs first, has stored a leaked cache.
    let cache = || unsafe { &*current.load(SeqCst) };
    let prepare = || current.store(Box::leak(Box::new(cache_of(LARGE))), SeqCst);
    let child = || {
        Few::alloc(cache(), 10).free(cache());
        assert_lost(cache(), SHEAF + 1);
    };
    let check = |object| {
        free(cache(), object);
        cache().shrink();
        assert_eq!(cache().stats().objects_outside_slabs, 0);
    };
    let alloc = || cache().alloc().expect("memory");
    fork_at_steps(Steps::Sampled, prepare, alloc, child, check);
}

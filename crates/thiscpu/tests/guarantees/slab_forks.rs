//! Slab caches: a forked child can use them, whatever was under way, and no object is two users'.

use std::collections::BTreeSet;
use std::ptr::{self, NonNull};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::SeqCst};

use thiscpu::{__test_support, Cache, RawCache};

use crate::common::objects::{Object, alloc_many, cache_of, close, free_all};
use crate::common::random::Random;
use crate::common::single_step::{at_sampled_steps, can_single_step};
use crate::common::threads::together;
use crate::common::token::SetOnDrop;
use crate::common::{CID_AND_ATOMIC, LANES_BY_CPU, Scenario, TIERS, fork, pin, scale, scenario};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(slab::child_loses_little_when_threads_are_busy, TIERS),
    scenario!(slab::child_loses_little_when_threads_shrink, TIERS),
    scenario!(slab::child_uses_its_lane, CID_AND_ATOMIC).needs(can_single_step),
    scenario!(slab::child_loses_little_when_forked_during_alloc, TIERS).needs(can_single_step),
    scenario!(slab::child_loses_little_when_forked_during_free, CID_AND_ATOMIC)
        .needs(can_single_step),
    scenario!(slab::child_loses_little_when_forked_during_shrink, CID_AND_ATOMIC)
        .needs(can_single_step),
    scenario!(slab::child_loses_little_when_forked_during_takeover, LANES_BY_CPU)
        .needs(can_single_step_on_one_node),
    scenario!(slab::child_loses_little_when_forked_during_first_use, CID_AND_ATOMIC)
        .needs(can_single_step),
];

/// In a child, which has `mine` of its parent's objects: it can use and free all that, and is not out of more than
/// `lost` other objects then.
fn assert_right_in_child(cache: &RawCache, mine: &mut Vec<Object>, lost: usize) {
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
    assert!(out <= most, "{out} objects are out, and not {most} at most");
    assert!(stats.slabs <= out, "{} slabs for {out} objects", stats.slabs);
}

/// What a busy thread has at most: two of them have more than their lanes, which so trade all the time.
const HELD: u64 = 300;

/// Forks while others allocate and free all the time, and call `disturb`. A child loses what those have, and for each
/// of them an object and as many as `in_hand`.
fn children_while(cache: &RawCache, in_hand: usize, disturb: impl Fn() + Sync) {
    const THREADS: usize = 3;
    let over = AtomicBool::new(false);
    let mut mine = alloc_many(cache, 0, 200);
    let work = |thread: usize| {
        if thread == 2 {
            __test_support::leave_lanes();
        }
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
    together(THREADS, work, || {
        let _over = SetOnDrop(&over);
        for round in 0..scale::rounds(40) {
            pin::pin(round as usize);
            let child = || {
                assert_right_in_child(cache, &mut mine, THREADS * (HELD as usize + 1 + in_hand));
                together(3, |_| free_all(cache, alloc_many(cache, 0, 100)), || _ = cache.shrink());
            };
            fork::run(child).expect("a child that is right");
        }
    });
    free_all(cache, mine);
}

fn child_loses_little_when_threads_are_busy() {
    // With how many a sheaf holds at most, where trades take much of the time.
    for (size, sheaf) in [(16, 1020), (2_000, 508), (20_000, 28)] {
        let cache = cache_of(size);
        children_while(&cache, sheaf, || ());
        close(cache);
    }
}

/// A thread that shrinks has in hand what lanes had: two sheaves each, and so has the shared one.
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
    typed.close().expect("nothing is out");
}

/// Also if a thread that is not in the child has closed the gate: what is freed goes to a lane, and not to the shared one,
/// where a thread without a lane finds it.
fn child_uses_its_lane() {
    let cache = &cache_of(200);
    pin::pin(0);
    let wrong = AtomicU64::new(0);
    let uses_its_lane = || {
        free_all(cache, alloc_many(cache, 0, 1));
        let object = Object::alloc(cache, 1).expect("there is memory");
        let address = object.address();
        let neither_in_slabs_nor_in_stocks = || {
            let stats = cache.stats();
            stats.objects_outside_slabs - stats.objects_in_barns
        };
        let before = neither_in_slabs_nor_in_stocks();
        object.free(cache);
        assert_eq!(neither_in_slabs_nor_in_stocks(), before, "it is not in the lane");
        let elsewhere = || {
            __test_support::leave_lanes();
            Object::alloc(cache, 2).map(|object| object.address())
        };
        let other =
            std::thread::scope(|threads| threads.spawn(elsewhere).join().expect("no panic"));
        assert_ne!(other, Some(address), "it was in the shared lane");
    };
    let conflict = |_| {
        wrong.fetch_add(u64::from(fork::run(uses_its_lane).is_err()), SeqCst);
    };
    let check = |steps, _, _| assert_eq!(wrong.load(SeqCst), 0, "a child is wrong after {steps}");
    at_sampled_steps(
        || free_all(cache, alloc_many(cache, 0, 1)),
        || cache.shrink(),
        conflict,
        check,
    );
}

/// So large that sheaves have 4 of them, also where trades take much of the time, and slabs of 12 units 8.
const LARGE: usize = 96_000;
const SHEAF: usize = 4;

/// Objects of which only the first and the last word say whose they are, because much is done with them here.
#[derive(Debug)]
struct Few(Vec<NonNull<[usize; LARGE / 8]>>);

// SAFETY: the objects are this value's alone.
unsafe impl Send for Few {}

impl Few {
    fn alloc(cache: &RawCache, count: usize) -> Few {
        let one = |_| {
            let mut object = cache.alloc().expect("there is memory").cast::<[usize; LARGE / 8]>();
            let address = object.addr().get();
            // SAFETY: the object is new, and nobody else's; its memory is zero or was written to.
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
            // SAFETY: the object is this value's.
            let words = unsafe { object.as_ref() };
            assert_eq!((words[0], words[LARGE / 8 - 1]), (address, !address));
            assert!(seen.insert(address), "{address:#x} is there twice");
        }
        for object in self.0.drain(..) {
            // SAFETY: it is from there, and not used any more.
            unsafe { cache.free(object.cast()) };
        }
    }
}

/// Forks at each step of `op`, on a cache of which some objects are in use; a child loses `lost` at most.
fn fork_amid<R>(
    cache: &RawCache,
    lost: usize,
    prepare: impl Fn(),
    op: impl Fn() -> R,
    end: impl Fn(R),
) {
    pin::pin(0);
    let mine = Mutex::new(Few::alloc(cache, 5));
    let wrong = AtomicU64::new(0);
    let conflict = |_| {
        let mut mine = mine.lock().expect("no panic");
        let child = fork::run(|| {
            mine.0.extend(Few::alloc(cache, 15).0);
            mine.free(cache);
            assert_lost(cache, lost);
        });
        wrong.fetch_add(u64::from(child.is_err()), SeqCst);
    };
    let check = |steps, _, result| {
        // Not by who forks: this thread would wait for that one's answer, for a minute.
        assert_eq!(wrong.load(SeqCst), 0, "a child is wrong after {steps}");
        end(result);
        cache.shrink();
        assert_eq!(cache.stats().objects_outside_slabs, 5, "stopped after {steps}");
    };
    at_sampled_steps(prepare, op, conflict, check);
    mine.lock().expect("no panic").free(cache);
}

fn free(cache: &RawCache, object: NonNull<u8>) {
    // SAFETY: the callers got it from there, and do not use it.
    unsafe { cache.free(object) };
}

/// One that gets its sheaf from a new slab.
fn child_loses_little_when_forked_during_alloc() {
    let cache = &cache_of(LARGE);
    let filler = Mutex::new(Few(Vec::new()));
    // Else the slab of the five has three more.
    let fill = || *filler.lock().expect("no panic") = Few::alloc(cache, 3);
    let alloc = || cache.alloc().expect("there is memory");
    let end = |object| {
        free(cache, object);
        filler.lock().expect("no panic").free(cache);
    };
    // A sheaf, the object, and the three.
    fork_amid(cache, SHEAF + 1 + 3, fill, alloc, end);
}

/// So many that lanes, and what is in the stock, change hands.
fn child_loses_little_when_forked_during_free() {
    const COUNT: usize = 2 * SHEAF + 2;
    let cache = &cache_of(LARGE);
    let objects = Mutex::new(Few(Vec::new()));
    let prepare = || *objects.lock().expect("no panic") = Few::alloc(cache, COUNT);
    // Bare, because each of its instructions is a step.
    let free_all = || {
        let objects = std::mem::take(&mut objects.lock().expect("no panic").0);
        objects.iter().for_each(|object| free(cache, object.cast()));
    };
    fork_amid(cache, COUNT + SHEAF, prepare, free_all, |()| ());
}

fn can_single_step_on_one_node() -> Result<(), String> {
    can_single_step().and_then(|()| pin::two_same_node_cpus())
}

/// One that gets its sheaf from a slab which lanes of another CPU have filled sheaves from.
fn child_loses_little_when_forked_during_takeover() {
    let [one, other] = pin::same_node_cpus().expect("there are two");
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
        (cache.alloc().expect("there is memory"), slabs)
    };
    let end = |(object, slabs)| {
        assert_eq!(cache.stats().slabs, slabs, "a new slab");
        free(cache, object);
        kept.lock().expect("no panic").free(cache);
    };
    // A sheaf, the object, and those that are kept.
    fork_amid(cache, SHEAF + 1 + 3, prepare, alloc, end);
}

/// What lanes had is in hand for a while, and lost to a child.
fn child_loses_little_when_forked_during_shrink() {
    let cache = &cache_of(LARGE);
    let prepare = || Few::alloc(cache, 3 * SHEAF).free(cache);
    fork_amid(cache, 4 * SHEAF, prepare, || cache.shrink(), |_| ());
}

/// A child finds it used, or not.
fn child_loses_little_when_forked_during_first_use() {
    let current = AtomicPtr::new(ptr::null_mut::<RawCache>());
    // SAFETY: `prepare` has leaked it.
    let cache = || unsafe { &*current.load(SeqCst) };
    let prepare = || current.store(Box::leak(Box::new(cache_of(LARGE))), SeqCst);
    let wrong = AtomicU64::new(0);
    let conflict = |_| {
        let child = fork::run(|| {
            Few::alloc(cache(), 10).free(cache());
            assert_lost(cache(), SHEAF + 1);
        });
        wrong.fetch_add(u64::from(child.is_err()), SeqCst);
    };
    let check = |steps, _, object| {
        assert_eq!(wrong.load(SeqCst), 0, "a child is wrong after {steps}");
        free(cache(), object);
        cache().shrink();
        assert_eq!(cache().stats().objects_outside_slabs, 0, "stopped after {steps}");
    };
    at_sampled_steps(prepare, || cache().alloc().expect("there is memory"), conflict, check);
}

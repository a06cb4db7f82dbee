//! Slab caches under long random runs: no object is handed out twice, and none is lost.
//!
//! An oracle knows which objects are in use. It changes in the same step in which an allocation
//! returns or a free begins, so it is exact at any time. Contents of objects are not modeled,
//! except the free mark, which the cache itself checks.

use std::alloc::Layout;
use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use thiscpu::model::{self, Machine};
use thiscpu::{RawCache, Tier};

use crate::run::{in_random_orders_on, leave_lanes_if, on_threads};

/// A size with slabs of two chunks, which hold more objects than the tests need.
///
/// In a model a chunk is a page.
const SMALL: usize = 1024;
/// Four objects to a slab, which has a quarter of all chunks.
///
/// Slabs come and go, and memory may run out.
const LARGE: usize = 16 * 1024;
/// One object to a slab, which has a quarter of all chunks.
const QUARTER: usize = 64 * 1024;

/// A cache of one execution, with an oracle of its objects in use.
#[derive(Clone)]
pub(crate) struct CheckedCache {
    pub(crate) raw: &'static RawCache,
    in_use: Arc<Mutex<BTreeSet<usize>>>,
}

impl CheckedCache {
    pub(crate) fn of(raw: &'static RawCache) -> CheckedCache {
        CheckedCache { raw, in_use: Arc::default() }
    }

    pub(crate) fn new(size: usize) -> CheckedCache {
        let layout = Layout::from_size_align(size, 8).expect("a layout");
        let makes = [RawCache::new, RawCache::direct];
        // Leaked, because no other cache may have this address in the same execution.
        CheckedCache::of(Box::leak(Box::new(makes[model::choose(2)](layout))))
    }

    fn in_use(&self) -> std::sync::MutexGuard<'_, BTreeSet<usize>> {
        self.in_use.lock().expect("no panic")
    }

    /// Allocates an object; returns false if memory has run out.
    pub(crate) fn alloc(&self) -> bool {
        let Some(object) = self.raw.alloc() else { return false };
        let object = object.as_ptr() as usize;
        assert!(self.in_use().insert(object), "{object:#x} is allocated twice");
        true
    }

    /// Frees a random object, if any is in use.
    pub(crate) fn free(&self) {
        let number = model::choose(self.in_use().len().max(1));
        let object = self.in_use().iter().copied().nth(number);
        object.into_iter().for_each(|object| self.free_object(object));
    }

    /// Returns the object in use with the lowest address.
    pub(crate) fn first(&self) -> usize {
        *self.in_use().first().expect("an object is in use")
    }

    pub(crate) fn free_last(&self) {
        let last = *self.in_use().last().expect("an object is in use");
        self.free_object(last);
    }

    pub(crate) fn free_object(&self, object: usize) {
        assert!(self.in_use().remove(&object));
        let object = std::ptr::with_exposed_provenance_mut(object);
        // SAFETY: the object was in the oracle, so it is allocated from this cache; it has just
        // been removed, so no other thread frees it.
        unsafe { self.raw.free(NonNull::new(object).expect("an object")) };
    }

    /// Shrinks, and asserts that all objects not in use are in their slabs.
    pub(crate) fn check_shrunk(&self) {
        self.raw.shrink();
        let stats = self.raw.stats();
        assert_eq!((stats.objects_outside_slabs, stats.objects_in_barns), (self.in_use().len(), 0));
    }

    /// Frees all objects and asserts that no slab is left; no other thread may use the cache.
    pub(crate) fn check_end(&self) {
        self.check_shrunk();
        while !self.in_use().is_empty() {
            self.free();
        }
        self.check_shrunk();
        assert_eq!(self.raw.stats().slabs, 0);
    }
}

/// Runs `work` on four threads, the last of which has no lane.
fn run(cpus: usize, cache: &CheckedCache, work: fn(&CheckedCache, usize)) {
    let cache = cache.clone();
    on_threads(4, cpus, move |thread| {
        leave_lanes_if(thread == 3);
        work(&cache, thread);
    });
}

const THREE: Machine = Machine::new(3, Tier::RseqCid);
const MACHINES: [Machine; 5] = [
    Machine::new(1, Tier::RseqCid),
    THREE,
    Machine { indices: (5, 7), nodes: 2, ..THREE },
    Machine { tier: Tier::Atomic, ..THREE },
    Machine { cpus: 2, tier: Tier::Atomic, nodes: 2, ..THREE },
];

/// Runs `test`, which takes the number of CPUs, on each machine.
///
/// The machines have one CPU or several, one node or two, dense or sparse lane indices, or no
/// lanes.
pub(crate) fn on_each_machine(executions: usize, test: fn(usize)) {
    in_random_orders_on(&MACHINES, executions, move |machine| test(machine.cpus));
}

/// Makes some random calls.
fn random_ops(cache: &CheckedCache) {
    for _ in 0..3 + model::choose(8) {
        match model::choose(20) {
            0..=8 => _ = cache.alloc(),
            9..=17 => cache.free(),
            18 => _ = cache.raw.shrink(),
            _ => assert!(cache.raw.stats().slabs <= 4),
        }
    }
}

#[test]
fn random_ops_keep_objects_distinct() {
    on_each_machine(4_000, |cpus| {
        let cache = CheckedCache::new(LARGE);
        run(cpus, &cache, |cache, _| random_ops(cache));
        cache.check_end();
    });
}

// Every allocation succeeds while there is memory.
#[test]
fn alloc_succeeds_while_memory_lasts() {
    on_each_machine(4_000, |cpus| {
        let cache = CheckedCache::new(SMALL);
        run(cpus, &cache, |cache, _| {
            for _ in 0..2 + model::choose(4) {
                assert!(cache.alloc(), "an allocation failed with memory left");
                if model::choose(2) == 0 {
                    assert!(cache.alloc(), "an allocation failed with memory left");
                }
                cache.free();
            }
        });
        cache.check_end();
    });
}

// Some threads only allocate, and others only free, on other CPUs and nodes.
#[test]
fn remote_frees_keep_objects_distinct() {
    on_each_machine(4_000, |cpus| {
        let cache = CheckedCache::new(LARGE);
        run(cpus, &cache, |cache, number| {
            (0..6).for_each(|_| match number % 2 {
                0 => _ = cache.alloc(),
                _ => cache.free(),
            });
        });
        cache.check_end();
    });
}

// Two threads shrink while others fill and empty the lanes.
#[test]
fn concurrent_shrinks_lose_nothing() {
    on_each_machine(4_000, |cpus| {
        let cache = CheckedCache::new(LARGE);
        run(cpus, &cache, |cache, number| match number {
            0 | 1 => (0..2).for_each(|_| _ = cache.raw.shrink()),
            _ => random_ops(cache),
        });
        cache.check_end();
    });
}

// Memory has run out, and two threads take objects from another node's barn.
#[test]
fn alloc_takes_from_barns_of_other_nodes() {
    let machine = Machine { nodes: 2, preempt_one_in: 0, ..THREE };
    in_random_orders_on(&[machine], 4_000, |_| {
        let cache = CheckedCache::new(LARGE);
        model::run_on(1);
        while cache.alloc() {}
        // Two sheaves stay in the lane, and one goes to the barn.
        (0..6).for_each(|_| cache.free());
        assert_eq!(cache.raw.stats().objects_in_barns, 2);
        let threads = [0, 2].map(|cpu| {
            let cache = cache.clone();
            model::spawn(cpu, move || cache.alloc())
        });
        let got = threads.map(model::Thread::join);
        // One thread may hold both objects while the other looks.
        assert_ne!(got, [false; 2]);
        cache.check_end();
    });
}

// Objects that stay unused in a barn return to their slabs when other lanes trade.
#[test]
fn idle_objects_return_to_slabs() {
    on_each_machine(2_000, |cpus| {
        let cache = CheckedCache::new(LARGE);
        while cache.alloc() {}
        while !cache.in_use().is_empty() {
            cache.free();
        }
        let busy = cache.clone();
        on_threads(2, cpus, move |_| {
            for _ in 0..4 {
                model::advance_clock_1s();
                (0..2 + model::choose(6)).for_each(|_| _ = busy.alloc());
                (0..8).for_each(|_| busy.free());
            }
        });
        cache.check_end();
    });
}

// Two caches reuse each other's chunks and sheaves, and leak nothing.
#[test]
fn caches_share_chunks_without_loss() {
    on_each_machine(2_000, |cpus| {
        let caches = [CheckedCache::new(LARGE), CheckedCache::new(QUARTER)];
        let threads = [0, 1, 0, 1].map(|number| {
            let cache = caches[number].clone();
            model::spawn(number % cpus, move || random_ops(&cache))
        });
        threads.into_iter().for_each(model::Thread::join);
        for cache in &caches {
            cache.check_end();
        }
        (0..4).for_each(|_| assert!(caches[1].alloc(), "chunks are lost"));
        assert!(!caches[1].alloc(), "there are more chunks than the machine has");
        caches[1].check_end();
    });
}

// Threads free a cache's last objects while it is closed; afterwards another cache has its memory.
#[test]
fn close_is_safe_while_last_objects_are_freed() {
    on_each_machine(1_000, |cpus| {
        let cache = CheckedCache::new(LARGE);
        let threads = [0, 1, 2].map(|number| {
            assert!(cache.alloc());
            let cache = cache.clone();
            // The threads collide in the shared lane, so some free into the slabs directly.
            model::spawn(number % cpus, move || {
                model::leave_lanes();
                cache.free();
            })
        });
        let mut threads = Some(threads);
        let raw = std::ptr::from_ref(cache.raw).cast_mut();
        for attempt in 0.. {
            if attempt == 3 {
                threads.take().into_iter().flatten().for_each(model::Thread::join);
            }
            // SAFETY: the drop either ends the cache or leaves it unchanged, and moves nothing. The
            // other threads use the cache only to free objects, which a drop allows.
            unsafe { std::ptr::drop_in_place(raw) };
            if cache.raw.stats().sheaf_capacity == 0 {
                break;
            }
        }
        let next = CheckedCache::new(LARGE);
        (0..3).for_each(|_| assert!(next.alloc(), "an allocation failed with memory left"));
        next.free();
        threads.into_iter().flatten().for_each(model::Thread::join);
        next.check_end();
    });
}

//! Slab caches: double frees, invalid frees and writes after free abort with a line that says
//! where.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use thiscpu::__internal::{HeapError, large};
use thiscpu::RawCache;

use crate::common::{
    CID_AND_ATOMIC, Scenario, TIERS, at_sampled_steps, cache_of, can_single_step, fork, pin,
    scenario,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(slab::double_free_aborts, TIERS),
    scenario!(slab::double_free_aborts_when_slab_is_gone, TIERS),
    scenario!(slab::double_free_aborts_when_mark_is_overwritten, TIERS),
    scenario!(slab::invalid_free_aborts, TIERS),
    scenario!(slab::interior_free_aborts, TIERS),
    scenario!(slab::write_after_free_aborts, TIERS),
    scenario!(slab::write_after_free_aborts_when_object_is_in_slab, TIERS),
    scenario!(slab::concurrent_double_free_of_large_block_is_reported, CID_AND_ATOMIC)
        .needs(can_single_step),
];

const TWICE: &str = "double free";
const NOT_HERE: &str = "invalid free: no object of that size was ever allocated there";
const INSIDE: &str = "invalid free: pointer into the middle of an object";
const WRITTEN: &str = "write after free";

/// Sizes of which a slab has many objects, few, or one.
const SIZES: [usize; 5] = [8, 64, 1_000, 40_000, ALONE];
/// A size of which a slab has one object.
const ALONE: usize = 1 << 20;

/// Asserts that `body` aborts a forked child with a line that reports `error`.
fn assert_reports(error: &str, address: NonNull<u8>, size: usize, body: impl FnOnce()) {
    let address = address.addr();
    fork::assert_aborts(&format!("thiscpu: {address:#x} ({size} bytes): {error}\n"), body);
}

fn alloc(cache: &RawCache) -> NonNull<u8> {
    cache.alloc().expect("memory")
}

/// Frees an object, perhaps wrongly.
fn free(cache: &RawCache, object: NonNull<u8>) {
    // SAFETY: where the call is invalid, the test expects the cache to report it. Even then the
    // address is readable and writable for 8 bytes, which the checks rely on.
    unsafe { cache.free(object) };
}

/// Frees an object and overwrites its first word, which has the free mark.
fn free_and_write(cache: &RawCache, object: NonNull<u8>, word: u64) {
    free(cache, object);
    // SAFETY: slabs stay accessible, and this process has no other thread.
    unsafe { object.cast::<u64>().write(word) };
}

// The second call reports the error, whether the object is in a lane, a barn or its slab.
//
// The test stays on one CPU, because another would have a slab of its own. A slab with one object
// would be gone.
fn double_free_aborts() {
    pin::pin(0);
    for size in SIZES {
        let cache = &cache_of(size);
        let objects = [(); 20].map(|()| alloc(cache));
        let [first, .., last] = objects;
        for object in [first, last] {
            assert_reports(TWICE, object, size, || {
                free(cache, object);
                free(cache, object);
            });
            // Another thread allocates in between.
            assert_reports(TWICE, object, size, || {
                objects.iter().for_each(|&object| free(cache, object));
                alloc(cache);
                std::thread::scope(|threads| _ = threads.spawn(|| alloc(cache).addr()).join());
                free(cache, object);
                free(cache, object);
            });
        }
        // Here the object has returned to its slab. The next test covers objects alone in a slab.
        if size < ALONE {
            assert_reports(TWICE, first, size, || {
                free(cache, first);
                cache.shrink();
                free(cache, first);
            });
        }
        objects.iter().for_each(|&object| free(cache, object));
    }
}

// The slab and its free marks are gone, so the error is found when the sheaf is flushed.
fn double_free_aborts_when_slab_is_gone() {
    for size in SIZES {
        let cache = &cache_of(size);
        let object = alloc(cache);
        assert_reports(NOT_HERE, object, size, || {
            free(cache, object);
            cache.shrink();
            free(cache, object);
            cache.shrink();
        });
        free(cache, object);
    }
}

// A write between the frees removes the free mark.
fn double_free_aborts_when_mark_is_overwritten() {
    // Another CPU would have other objects.
    pin::pin(0);
    for size in SIZES {
        let cache = &cache_of(size);
        let (object, _other) = (alloc(cache), alloc(cache));
        let free_twice = || {
            free_and_write(cache, object, 77);
            free(cache, object);
        };
        // An object that is alone in its slab loses its slab with the first flush.
        let error = if size < ALONE { TWICE } else { NOT_HERE };
        assert_reports(error, object, size, || {
            free_twice();
            cache.shrink();
        });
        // If the object is allocated again, the second allocation finds the overwritten mark.
        assert_reports(WRITTEN, object, size, || {
            free_twice();
            assert_eq!(alloc(cache), object);
            alloc(cache);
        });
    }
}

// An unused cache reports the error at once, others when the sheaf is flushed at the latest.
fn invalid_free_aborts() {
    #[repr(align(8))]
    struct Aligned([u8; 8]);
    let (other, on_stack) = (&cache_of(64), Aligned([1; 8]));
    let foreign = [
        alloc(other),
        alloc(&cache_of(1 << 20)),
        NonNull::from(&on_stack.0).cast(),
        NonNull::from(Box::leak(Box::new(5_u64))).cast(),
    ];
    for object in foreign {
        for size in SIZES {
            let cache = &cache_of(size);
            assert_reports(NOT_HERE, object, size, || free(cache, object));
            let own = alloc(cache);
            assert_reports(NOT_HERE, object, size, || {
                free(cache, object);
                cache.shrink();
            });
            free(cache, own);
        }
    }
}

fn interior_free_aborts() {
    for size in &SIZES[1..] {
        let cache = &cache_of(*size);
        let object = alloc(cache);
        for offset in [8, (size / 2) & !7, size - 8] {
            // SAFETY: the offset is within the object.
            let inside = unsafe { object.add(offset) };
            assert_reports(INSIDE, inside, *size, || {
                free(cache, inside);
                cache.shrink();
            });
        }
    }
}

// The next allocation of the object reports the error.
//
// The test stays on one CPU, because others would have other objects.
fn write_after_free_aborts() {
    pin::pin(0);
    for size in SIZES {
        let cache = &cache_of(size);
        let objects = [(); 30].map(|()| alloc(cache));
        let object = objects[7];
        assert_reports(WRITTEN, object, size, || {
            objects.iter().for_each(|&object| free(cache, object));
            // SAFETY: slabs stay accessible, and this process has no other thread.
            unsafe { object.write(!object.read()) };
            (0..1_000).for_each(|_| _ = alloc(cache));
        });
    }
}

// The object has returned to its slab, which another object keeps.
//
// The test stays on one CPU, because others would have other objects.
fn write_after_free_aborts_when_object_is_in_slab() {
    pin::pin(0);
    for size in SIZES.into_iter().filter(|&size| size < ALONE) {
        let cache = &cache_of(size);
        let (object, kept) = (alloc(cache), alloc(cache));
        assert_reports(WRITTEN, object, size, || {
            free(cache, object);
            cache.shrink();
            // SAFETY: slabs stay accessible, and this process has no other thread.
            unsafe { object.write(!object.read()) };
            (0..1_000).for_each(|_| _ = alloc(cache));
        });
        free(cache, object);
        free(cache, kept);
    }
}

// One of two concurrent frees succeeds, and the other one reports a double free.
fn concurrent_double_free_of_large_block_is_reported() {
    const BYTES: usize = 1 << 20;
    let (block, freed, unreported) =
        (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let free = || {
        let address = block.load(SeqCst);
        if large::free(address) {
            freed.fetch_add(1, SeqCst);
        } else if !matches!(large::error_at(address), (HeapError::DoubleFree, BYTES)) {
            unreported.fetch_add(1, SeqCst);
        }
    };
    let prepare = || {
        freed.store(0, SeqCst);
        block.store(large::allocate(BYTES, 1).expect("memory"), SeqCst);
    };
    let check = |steps, reached, ()| {
        let expected = (1, 0);
        let found = (freed.load(SeqCst), unreported.load(SeqCst));
        assert_eq!(found, expected, "stopped: {reached}, after {steps}");
    };
    at_sampled_steps(prepare, free, |_| free(), check);
}

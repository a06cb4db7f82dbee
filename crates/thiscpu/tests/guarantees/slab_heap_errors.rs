//! Slab caches: what a program does wrong with objects ends it, with a line that names the address.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use thiscpu::__internal::{HeapError, large};
use thiscpu::RawCache;

use crate::common::objects::cache_of;
use crate::common::single_step::{at_sampled_steps, can_single_step};
use crate::common::{CID_AND_ATOMIC, Scenario, TIERS, fork, pin, scenario};

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

const TWICE: &str = "freed twice";
const NOT_HERE: &str = "freed, but nothing of that size was ever handed out there";
const INSIDE: &str = "freed, but it is inside of an object and not where one begins";
const WRITTEN: &str = "written to after it was freed";

/// The smallest, some that share a slab with many, with few, and with none.
const SIZES: [usize; 5] = [8, 64, 1_000, 40_000, ALONE];
/// Of these a slab has one.
const ALONE: usize = 1 << 20;

/// `body` ends the process that it runs in, with a line that says `what` of an address.
fn assert_ends(what: &str, address: NonNull<u8>, size: usize, body: impl FnOnce()) {
    let (status, words) = fork::capture_stderr(body);
    let is_aborted = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT;
    assert!(is_aborted, "{size} bytes, {what:?}: ended with {status:#x}: {words}");
    let address = address.addr();
    assert_eq!(words, format!("thiscpu: {address:#x} ({size} bytes): {what}\n"));
}

fn alloc(cache: &RawCache) -> NonNull<u8> {
    cache.alloc().expect("there is memory")
}

/// Frees whatever that is.
fn free(cache: &RawCache, object: NonNull<u8>) {
    // SAFETY: what is tested is that this is noticed where it must not be done; the address is readable and
    // writable for 8 bytes.
    unsafe { cache.free(object) };
}

/// Noticed by the second call, wherever the object is by then. On one CPU: from another there would be objects of another slab, and one
/// that is alone in its own is gone with it.
fn double_free_aborts() {
    pin::pin(0);
    for size in SIZES {
        let cache = &cache_of(size);
        let objects = [(); 20].map(|()| alloc(cache));
        let [first, .., last] = objects;
        for object in [first, last] {
            assert_ends(TWICE, object, size, || {
                free(cache, object);
                free(cache, object);
            });
            // Others come in between, on another thread.
            assert_ends(TWICE, object, size, || {
                objects.iter().for_each(|&object| free(cache, object));
                alloc(cache);
                std::thread::scope(|threads| _ = threads.spawn(|| alloc(cache).addr()).join());
                free(cache, object);
                free(cache, object);
            });
        }
        // After it went back to its slab. Where it was alone there, see the next test.
        if size < ALONE {
            assert_ends(TWICE, first, size, || {
                free(cache, first);
                cache.shrink();
                free(cache, first);
            });
        }
        objects.iter().for_each(|&object| free(cache, object));
    }
}

/// Its slab has been given back, and with it what said that the object is free: noticed when the sheaf comes to the slabs.
fn double_free_aborts_when_slab_is_gone() {
    for size in SIZES {
        let cache = &cache_of(size);
        let object = alloc(cache);
        assert_ends(NOT_HERE, object, size, || {
            free(cache, object);
            cache.shrink();
            free(cache, object);
            cache.shrink();
        });
        free(cache, object);
    }
}

/// Written to in between, so that nothing in the object says that it is free.
fn double_free_aborts_when_mark_is_overwritten() {
    // On another CPU there are other objects.
    pin::pin(0);
    for size in SIZES {
        let cache = &cache_of(size);
        let (object, _other) = (alloc(cache), alloc(cache));
        let free_twice = || {
            free(cache, object);
            // SAFETY: slabs stay accessible, and nobody else is in this process.
            unsafe { object.cast::<u64>().write(77) };
            free(cache, object);
        };
        // With its slab goes what knows the object as free.
        let what = if size < ALONE { TWICE } else { NOT_HERE };
        assert_ends(what, object, size, || {
            free_twice();
            cache.shrink();
        });
        // Or whoever gets it second.
        assert_ends(WRITTEN, object, size, || {
            free_twice();
            assert_eq!(alloc(cache), object);
            alloc(cache);
        });
    }
}

/// Noticed at the latest when the sheaf comes to the slabs; by a cache that was never used at once.
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
            assert_ends(NOT_HERE, object, size, || free(cache, object));
            let own = alloc(cache);
            assert_ends(NOT_HERE, object, size, || {
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
            // SAFETY: in bounds of the object.
            let inside = unsafe { object.add(offset) };
            assert_ends(INSIDE, inside, *size, || {
                free(cache, inside);
                cache.shrink();
            });
        }
    }
}

/// Noticed when it is handed out again. On one CPU: others would have objects of their own.
fn write_after_free_aborts() {
    pin::pin(0);
    for size in SIZES {
        let cache = &cache_of(size);
        let objects = [(); 30].map(|()| alloc(cache));
        let object = objects[7];
        assert_ends(WRITTEN, object, size, || {
            objects.iter().for_each(|&object| free(cache, object));
            // SAFETY: slabs stay accessible, and nobody else is in this process.
            unsafe { object.write(!object.read()) };
            (0..1_000).for_each(|_| _ = alloc(cache));
        });
    }
}

/// The same after it went back to its slab, which is kept by another. On one CPU, as above.
fn write_after_free_aborts_when_object_is_in_slab() {
    pin::pin(0);
    for size in SIZES.into_iter().filter(|&size| size < ALONE) {
        let cache = &cache_of(size);
        let (object, kept) = (alloc(cache), alloc(cache));
        assert_ends(WRITTEN, object, size, || {
            free(cache, object);
            cache.shrink();
            // SAFETY: slabs stay accessible, and nobody else is in this process.
            unsafe { object.write(!object.read()) };
            (0..1_000).for_each(|_| _ = alloc(cache));
        });
        free(cache, object);
        free(cache, kept);
    }
}

/// One of the two has done it, and the other is told that it was freed twice, whenever that comes.
fn concurrent_double_free_of_large_block_is_reported() {
    const BYTES: usize = 1 << 20;
    let (block, freed, wrong) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let free = || {
        let address = block.load(SeqCst);
        if large::free(address) {
            freed.fetch_add(1, SeqCst);
        } else if !matches!(large::error_at(address), (HeapError::DoubleFree, BYTES)) {
            wrong.fetch_add(1, SeqCst);
        }
    };
    let prepare = || {
        freed.store(0, SeqCst);
        block.store(large::allocate(BYTES, 1).expect("there is memory"), SeqCst);
    };
    let check = |steps, reached, ()| {
        let expected = (1, 0);
        assert_eq!((freed.load(SeqCst), wrong.load(SeqCst)), expected, "{reached} after {steps}");
    };
    at_sampled_steps(prepare, free, |_| free(), check);
}

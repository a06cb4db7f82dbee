//! Caches of objects.

use std::alloc::Layout;
use std::ffi::c_void;
use std::mem::{ManuallyDrop, offset_of};
use std::ptr::{NonNull, null_mut};

use thiscpu::RawCache;
use thiscpu::inside::foreign::{self, CACHE_GATE_AND_KEY_AT};

use crate::ffi::{call, end, make, place, there};
use crate::status::Status;

/// Objects of one size, allocated and freed on any CPU at about a nanosecond each: the kernel's `kmem_cache`.
///
/// All its functions may be called by any number of threads at once, `thiscpu_cache_close` and `thiscpu_cache_destroy` by the last.
/// None may be called from signal handlers. What was done with an object before it was freed comes before what is done with it after it was
/// allocated again, on whatever CPU.
///
/// Some mistakes are noticed, and end the process with a line that says which address it is: what is freed twice (at once as a rule, unless somebody
/// else got it in between), what is freed to another cache (when CPUs give back what they keep), and a write to the first 8 bytes of
/// a free object (when that is allocated). Reads of free objects, other writes to them, and writes beyond an object's end are not noticed.
pub struct ThiscpuCache(RawCache);

// Where thiscpu_inline.h has the gate and the key.
const _: () = {
    let [gate, key] = CACHE_GATE_AND_KEY_AT;
    assert!(offset_of!(ThiscpuCache, 0) + gate == 0 && offset_of!(ThiscpuCache, 0) + key == 8);
};

/// What a cache has, about, and what it has done.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThiscpuCacheStats {
    /// The bytes of an object.
    pub object_bytes: usize,
    /// Slabs, which hold the objects.
    pub slabs: usize,
    /// The bytes of those.
    pub slab_bytes: usize,
    /// Objects that are not free in a slab: those in use, and those that CPUs and their shared stores keep.
    pub objects_outside_slabs: usize,
    /// Objects that the shared stores keep.
    pub objects_in_barns: usize,
    /// How many objects a CPU trades with its store at a time.
    pub sheaf_capacity: usize,
    /// How often that was done.
    pub trades: u64,
}

/// Makes a cache of objects of so many bytes, at most 1,048,576, at multiples of `align`, a power of two of at most 65,536, and puts its handle into
/// `*cache`. The handle is valid until `thiscpu_cache_close` or `thiscpu_cache_destroy`.
///
/// Errors: `THISCPU_STATUS_NULL_POINTER`; `THISCPU_STATUS_INVALID_SIZE` if there is no such size or alignment; `THISCPU_STATUS_UNKNOWN_TIER`,
/// `THISCPU_STATUS_TIER_UNAVAILABLE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_cache_create(
    bytes: usize,
    align: usize,
    cache: *mut *mut ThiscpuCache,
) -> Status {
    let new = || {
        let layout = Layout::from_size_align(bytes, align).map_err(|_| Status::InvalidSize)?;
        if bytes > RawCache::SIZE_MAX || align > RawCache::ALIGN_MAX {
            return Err(Status::InvalidSize);
        }
        thiscpu::tier()?;
        Ok(ThiscpuCache(RawCache::new(layout)))
    };
    // SAFETY: a caller's pointer is null or valid, as the header asks.
    unsafe { make(cache, new) }
}

/// Ends a cache that no object is out of, and gives its memory back. Nobody may use the handle any more, nor be using it. Null is none,
/// and `THISCPU_STATUS_OK`.
///
/// `*objects` (which may be null) becomes the number of objects that are still allocated: 0 if the cache is gone.
///
/// Errors: `THISCPU_STATUS_IN_USE` if there are some: the handle stays valid then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_cache_close(
    cache: *mut ThiscpuCache,
    objects: *mut usize,
) -> Status {
    call(|| {
        if !cache.is_aligned() {
            return Err(Status::Misaligned);
        }
        // SAFETY: a caller's pointer is null or valid, as the header asks.
        let place = if objects.is_null() { None } else { Some(unsafe { place(objects) }?) };
        if cache.is_null() {
            if let Some(place) = place {
                place.put(0);
            }
            return Ok(());
        }
        // SAFETY: the handle is live, and the caller's to end: it is taken out of its place, which is freed if the cache has ended.
        let taken = unsafe { cache.read() };
        let closed = taken.0.close();
        if let Some(place) = place {
            place.put(closed.as_ref().map_or_else(|still| still.objects, |()| 0));
        }
        let Err(still) = closed else {
            // SAFETY: `make` made it, and what it held is gone.
            drop(unsafe { Box::from_raw(cache.cast::<ManuallyDrop<ThiscpuCache>>()) });
            return Ok(());
        };
        // SAFETY: where it was taken from.
        unsafe { cache.write(ThiscpuCache(still.cache)) };
        Err(Status::InUse)
    })
}

/// Ends a cache, also if objects are still out: they stay valid for ever. Nobody may use the handle any more, nor be using it, and nobody can free
/// those objects then. Null is none, and `THISCPU_STATUS_OK`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_cache_destroy(cache: *mut ThiscpuCache) -> Status {
    // SAFETY: the handle is the caller's to end.
    unsafe { end(cache) }
}

/// An object that nobody else has until it is freed, uninitialized but for its first 8 bytes, which are 0. Null if there is no memory, or the
/// handle is null or misaligned: this returns no status. One restartable sequence, as long as this CPU has some.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_cache_alloc(cache: *mut ThiscpuCache) -> *mut c_void {
    let mut object = None;
    let status = call(|| {
        // SAFETY: a handle is null or live, as the header asks.
        object = unsafe { there(cache) }?.0.alloc();
        Ok(())
    });
    object.filter(|_| status == Status::Ok).map_or(null_mut(), |object| object.cast().as_ptr())
}

// Not for the header of the functions, so not documented there: an inlined `alloc` comes here with an encoded that is not marked.
#[unsafe(export_name = "thiscpu_inline_abi_3_finish_alloc")]
unsafe extern "C" fn finish_alloc(cache: *mut ThiscpuCache, encoded: usize) -> *mut c_void {
    let mut object = None;
    let status = call(|| {
        // SAFETY: a handle is live where something was taken out of it.
        object = foreign::finish_alloc(&unsafe { there(cache) }?.0, encoded);
        Ok(())
    });
    object.filter(|_| status == Status::Ok).map_or(null_mut(), |object| object.cast().as_ptr())
}

/// Frees an object of the cache, on any thread. Null is none, and `THISCPU_STATUS_OK`. One restartable sequence, as long as this CPU has
/// room.
///
/// Errors: `THISCPU_STATUS_NULL_POINTER` if the handle is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_cache_free(
    cache: *mut ThiscpuCache,
    object: *mut c_void,
) -> Status {
    call(|| {
        // SAFETY: a handle is null or live, as the header asks.
        let cache = unsafe { there(cache) }?;
        if let Some(object) = NonNull::new(object) {
            // SAFETY: the header asks that it is from this cache, and not used any more.
            unsafe { cache.0.free(object.cast()) };
        }
        Ok(())
    })
}

/// Gives what is free back to the system, of this cache and of others; how many bytes that were into `*bytes`, which may be null. A fence.
///
/// Errors: `THISCPU_STATUS_NULL_POINTER` if the handle is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_cache_shrink(
    cache: *mut ThiscpuCache,
    bytes: *mut usize,
) -> Status {
    call(|| {
        // SAFETY: as for `thiscpu_cache_free`.
        let cache = unsafe { there(cache) }?;
        // SAFETY: a caller's pointer is null or valid, as the header asks.
        let place = if bytes.is_null() { None } else { Some(unsafe { place(bytes) }?) };
        let given_back = cache.0.shrink();
        if let Some(place) = place {
            place.put(given_back);
        }
        Ok(())
    })
}

/// What the cache has and has done, into `*stats`. Looks at all of its slabs; numbers that change meanwhile do not belong to one instant.
///
/// Errors: `THISCPU_STATUS_NULL_POINTER`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_cache_stats(
    cache: *mut ThiscpuCache,
    stats: *mut ThiscpuCacheStats,
) -> Status {
    call(|| {
        // SAFETY: as for `thiscpu_cache_free`, and a caller's pointer is null or valid.
        let (cache, place) = unsafe { (there(cache)?, place(stats)?) };
        let stats = cache.0.stats();
        place.put(ThiscpuCacheStats {
            object_bytes: stats.object_bytes,
            slabs: stats.slabs,
            slab_bytes: stats.slab_bytes,
            objects_outside_slabs: stats.objects_outside_slabs,
            objects_in_barns: stats.objects_in_barns,
            sheaf_capacity: stats.sheaf_capacity,
            trades: stats.trades,
        });
        Ok(())
    })
}

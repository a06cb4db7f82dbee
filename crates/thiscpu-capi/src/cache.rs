//! Caches of objects.

use std::alloc::Layout;
use std::ffi::c_void;
use std::mem::{ManuallyDrop, offset_of};
use std::ptr::{NonNull, null_mut};

use thiscpu::__internal::capi::{self, CACHE_GATE_AND_KEY_OFFSETS};
use thiscpu::{CacheStats, RawCache};

use crate::ffi::{OutParam, catch, create, deref, destroy, free};
use crate::status::Status;

/// A cache of objects of one size, like the kernel's `kmem_cache`. Rust: `RawCache`.
///
/// Objects are allocated and freed on any CPU, in about 1 ns each.
///
/// - Threads: any number may call all functions at once, except `thiscpu_cache_close` and
///   `thiscpu_cache_destroy`. Any thread may free an object.
/// - Lifetime: from `thiscpu_cache_create` to `thiscpu_cache_close` or `thiscpu_cache_destroy`.
/// - Signal handlers: none of the functions.
/// - After `fork`: the child has a cache of its own, with copies of the parent's objects.
/// - Memory order: a thread's accesses to an object before it frees the object happen before all
///   accesses of the object's next owner.
///
/// Some misuse is detected. The process then aborts with a message that has the object's address:
///
/// - Double free: usually at once; never if the object was allocated again in between.
/// - Free to another cache: when CPUs return the objects that they keep.
/// - Write to the first 8 bytes of a free object: when the object is allocated.
///
/// Reads of free objects, other writes to them, and writes past an object's end are not detected.
pub struct ThiscpuCache(RawCache);

impl ThiscpuCache {
    pub(crate) fn raw(&self) -> &RawCache {
        &self.0
    }
}

// thiscpu_inline.h has the gate and the key at these offsets.
const _: () = {
    let [gate, key] = CACHE_GATE_AND_KEY_OFFSETS;
    assert!(offset_of!(ThiscpuCache, 0) + gate == 0 && offset_of!(ThiscpuCache, 0) + key == 8);
};

/// Statistics of a cache.
///
/// CPUs keep free objects in sheaves (arrays) and trade them with barns, which they share. If other
/// threads use the cache during the call, the numbers may belong to different instants.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThiscpuCacheStats {
    /// The size of an object, in bytes.
    pub object_bytes: usize,
    /// The number of slabs, which hold the objects.
    pub slabs: usize,
    /// The size of all slabs, in bytes.
    pub slab_bytes: usize,
    /// The number of objects outside slabs: allocated, or kept by CPUs and barns.
    pub objects_outside_slabs: usize,
    /// The number of free objects that barns keep.
    pub objects_in_barns: usize,
    /// The number of objects that a new sheaf holds. A CPU trades a sheaf at a time.
    pub sheaf_capacity: usize,
    /// The number of sheaves that CPUs have traded.
    pub trades: u64,
}

impl From<CacheStats> for ThiscpuCacheStats {
    fn from(stats: CacheStats) -> Self {
        ThiscpuCacheStats {
            object_bytes: stats.object_bytes,
            slabs: stats.slabs,
            slab_bytes: stats.slab_bytes,
            objects_outside_slabs: stats.objects_outside_slabs,
            objects_in_barns: stats.objects_in_barns,
            sheaf_capacity: stats.sheaf_capacity,
            trades: stats.trades,
        }
    }
}

/// The largest size of an object of a cache, in bytes: 1 MiB.
pub const THISCPU_CACHE_SIZE_MAX: usize = 1_048_576;
/// The largest alignment of an object of a cache, in bytes.
pub const THISCPU_CACHE_ALIGN_MAX: usize = 65_536;
const _: () = assert!(THISCPU_CACHE_SIZE_MAX == RawCache::SIZE_MAX);
const _: () = assert!(THISCPU_CACHE_ALIGN_MAX == RawCache::ALIGN_MAX);

/// Creates a cache of objects of `bytes` bytes and stores its handle in `*cache`.
///
/// `bytes` is at most `THISCPU_CACHE_SIZE_MAX`; an object has at least 8. `align` is the alignment
/// of objects: a power of two, at most `THISCPU_CACHE_ALIGN_MAX`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `UNKNOWN_TIER`, `TIER_UNAVAILABLE`; `INVALID_SIZE`
///   if `bytes` or `align` is not supported.
/// - Blocks: only in the first use of the library, while another thread determines the tier.
/// - Signal handlers: not allowed.
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
    // SAFETY: the header requires that `cache` is null or valid for writes.
    unsafe { create(cache, new) }
}

/// Closes a cache and frees its memory, unless any of its objects is still allocated.
///
/// Stores the number of objects that are still allocated in `*objects`: 0 if the cache is closed.
/// No other thread may use the handle during this call, and no thread after it has returned `OK`.
///
/// - NULL: allowed for `objects`. If `cache` is NULL, the call stores 0 and returns `OK`.
/// - Returns: `OK`; `IN_USE` if objects are still allocated (the handle stays valid).
/// - Blocks: for a fence, and while another thread allocates or frees per-CPU memory.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_cache_close(
    cache: *mut ThiscpuCache,
    objects: *mut usize,
) -> Status {
    catch(|| {
        if !cache.is_aligned() {
            return Err(Status::Misaligned);
        }
        // SAFETY: the header requires that `objects` is null or valid for writes.
        let out = unsafe { OutParam::optional(objects) }?;
        // SAFETY: the header requires that the handle is null or live, and that no other thread
        // uses it.
        let (status, still_allocated) = unsafe { close(cache) };
        if let Some(out) = out {
            out.write(still_allocated);
        }
        status
    })
}

/// Closes a cache, and returns how many of its objects are still allocated.
///
/// # Safety
///
/// The handle is null or live, and no other thread uses it. After `Ok` no thread may use it.
unsafe fn close(cache: *mut ThiscpuCache) -> (Result<(), Status>, usize) {
    let Some(handle) = NonNull::new(cache) else { return (Ok(()), 0) };
    // SAFETY: the caller guarantees that the handle is live and its own. The copy replaces the
    // original: either the memory is freed without a drop, or the cache is written back.
    match unsafe { cache.read() }.0.close() {
        Ok(()) => {
            // SAFETY: `create` made the handle. `ManuallyDrop` keeps its content, which `close` has
            // consumed, from being dropped again.
            unsafe { free(handle.cast::<ManuallyDrop<ThiscpuCache>>()) };
            (Ok(()), 0)
        }
        Err(in_use) => {
            // SAFETY: the cache was read from this place, whose content nobody has used since.
            unsafe { cache.write(ThiscpuCache(in_use.cache)) };
            (Err(Status::InUse), in_use.objects)
        }
    }
}

/// Destroys a cache even if objects are still allocated; these stay valid forever.
///
/// Such objects can no longer be freed. No thread may use the handle during or after this call.
///
/// - NULL: allowed; does nothing.
/// - Returns: `OK`.
/// - Blocks: for a fence, and while another thread allocates or frees per-CPU memory.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_cache_destroy(cache: *mut ThiscpuCache) -> Status {
    // SAFETY: the header requires that the handle is null or live, and that no thread uses it any
    // more.
    unsafe { destroy(cache) }
}

/// Allocates an object. Its first 8 bytes are 0; the rest is uninitialized.
///
/// Costs one restartable sequence if this CPU keeps a free object. Inlined; see `thiscpu_inline.h`.
///
/// - NULL: not allowed.
/// - Returns: the object, not a status; NULL on lack of memory, or if `cache` is NULL or
///   misaligned.
/// - Blocks: if this CPU keeps no free object, while other threads trade objects or get memory.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_cache_alloc(cache: *mut ThiscpuCache) -> *mut c_void {
    // SAFETY: the header requires that the handle is null or live.
    unsafe { object_from(cache, RawCache::alloc) }
}

// Inlined calls alone use this function, so it is not in thiscpu.h. They pass an object that they
// have taken from the lane as an encoded pointer, and whose free mark is wrong: it was written to
// after it was freed. This reports that and aborts.
#[unsafe(export_name = "thiscpu_inline_abi_5_finish_alloc")]
unsafe extern "C" fn finish_alloc(cache: *mut ThiscpuCache, encoded: usize) -> *mut c_void {
    // SAFETY: the inlined call has just taken an object from this cache, so the handle is live.
    unsafe { object_from(cache, |cache| capi::finish_alloc(cache, encoded)) }
}

/// Returns the object that `alloc` returns; null if there is none, or no cache.
///
/// # Safety
///
/// The handle is null, misaligned or live.
unsafe fn object_from(
    cache: *mut ThiscpuCache,
    alloc: impl FnOnce(&RawCache) -> Option<NonNull<u8>>,
) -> *mut c_void {
    let mut object = None;
    let status = catch(|| {
        // SAFETY: the caller guarantees that the handle is null, misaligned or live.
        object = alloc(&unsafe { deref(cache) }?.0);
        Ok(())
    });
    object.filter(|_| status == Status::Ok).map_or(null_mut(), |object| object.cast().as_ptr())
}

/// Frees an object of the cache, on any thread.
///
/// The object must be from this cache and must not be used any more. Costs one restartable sequence
/// if this CPU has room for it. Inlined; see `thiscpu_inline.h`.
///
/// - NULL: allowed for `object`, which then does nothing; not for `cache`.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: if this CPU has no room, while other threads trade objects or return memory.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_cache_free(
    cache: *mut ThiscpuCache,
    object: *mut c_void,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live.
        let cache = unsafe { deref(cache) }?;
        if let Some(object) = NonNull::new(object) {
            // SAFETY: the header requires that the object is from this cache and no longer used.
            unsafe { cache.0.free(object.cast()) };
        }
        Ok(())
    })
}

/// Returns free memory of this and other caches to the system.
///
/// Stores the number of returned bytes in `*bytes`. Costs one fence. If no fence is possible, CPUs
/// keep their objects, and the call returns `OK`.
///
/// - NULL: allowed for `bytes`; not for `cache`.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: for a fence, and while other threads trade objects.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_cache_shrink(
    cache: *mut ThiscpuCache,
    bytes: *mut usize,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live, and `bytes` null or valid
        // for writes.
        let (cache, out) = unsafe { (deref(cache)?, OutParam::optional(bytes)?) };
        let returned = cache.0.shrink();
        if let Some(out) = out {
            out.write(returned);
        }
        Ok(())
    })
}

/// Stores statistics of the cache in `*stats`. Visits each of its slabs.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_cache_stats(
    cache: *mut ThiscpuCache,
    stats: *mut ThiscpuCacheStats,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live, and `stats` null or valid
        // for writes.
        let (cache, out) = unsafe { (deref(cache)?, OutParam::new(stats)?) };
        out.write(cache.0.stats().into());
        Ok(())
    })
}

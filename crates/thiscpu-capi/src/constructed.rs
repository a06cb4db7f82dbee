//! Caches whose objects stay constructed while they are free.

use std::alloc::Layout;
use std::ffi::{c_int, c_void};
use std::mem::{ManuallyDrop, offset_of};
use std::ptr::{NonNull, null_mut};

use thiscpu::__internal::Lifecycle;
use thiscpu::__internal::capi::RawConstructedCache;

use crate::cache::ThiscpuCacheStats;
use crate::ffi::{OutParam, catch, create, create_at, deref, destroy, free, write};
use crate::last_error;
use crate::prefill::ThiscpuPrefilled;
use crate::status::Status;

/// A cache whose objects stay constructed while they are free. Rust: `ConstructedCache`.
///
/// Costly parts of an object, such as a buffer or a lock, are made once and found by each later
/// user. Callbacks of the program construct and destroy objects:
///
/// - `construct(object, context)` is called when the memory of an object is first allocated. It
///   returns 0, or another number if it failed; then the object's memory is free again.
/// - `destroy(object, context)` is called once for each constructed object, when its memory is
///   freed: by `_close`, `_destroy` or `_shrink`. `_free` and `_alloc` call it too, if all objects
///   of a slab are free and the cache has enough free objects. A slab has 64 KiB, or more for large
///   objects. Such a call destroys the objects of five slabs at most, and those that another
///   thread's `_shrink` leaves to it.
///
/// An object is as its last user left it. Users leave it in the state that the next one expects:
/// empty, unlocked.
///
/// - Callbacks: they run in calls on the cache, on the calling thread, without a lock of the cache.
///   Several threads may run them at once. They may use the cache, except during `_close` and
///   `_destroy`. An object must not own an object of its own cache. Callbacks must return: an
///   exception that leaves one ends the process, and `longjmp` out of one is undefined.
/// - Threads: any number may call all functions at once, except `_close` and `_destroy`. Any thread
///   may free an object.
/// - Lifetime: from `thiscpu_constructed_cache_create` to `thiscpu_constructed_cache_close` or
///   `thiscpu_constructed_cache_destroy`.
/// - Signal handlers: none of the functions.
/// - After `fork`: the child has a cache of its own, with copies of the parent's objects. It never
///   destroys objects that another thread of the parent held, and not all objects of a slab that
///   was being freed.
/// - Memory order: a thread's accesses to an object before it frees the object happen before all
///   accesses of the object's next owner, and before its destruction.
///
/// A double free is detected as by a `thiscpu_cache`, and a write to the word behind a free object,
/// which belongs to the cache.
pub struct ThiscpuConstructedCache {
    cache: RawConstructedCache,
    callbacks: Callbacks,
}

/// The functions of the program that construct and destroy objects, and their context.
struct Callbacks {
    construct: unsafe extern "C-unwind" fn(object: *mut c_void, context: *mut c_void) -> c_int,
    destroy: Option<unsafe extern "C-unwind" fn(object: *mut c_void, context: *mut c_void)>,
    context: *mut c_void,
}

impl Callbacks {
    /// Returns the callbacks at an address.
    ///
    /// # Safety
    ///
    /// The caller guarantees that the address is that of a handle's callbacks, and that the handle
    /// is not destroyed while the result is used.
    unsafe fn at<'a>(address: usize) -> &'a Callbacks {
        // SAFETY: the caller guarantees that callbacks are at this address, which `create` exposed.
        // They never change, and live as long as the handle.
        unsafe { &*std::ptr::with_exposed_provenance(address) }
    }
}

/// Constructs an object, as the constructor of a `Lifecycle`.
///
/// # Safety
///
/// The caller guarantees that `callbacks` is the address of the callbacks of the cache that
/// `object` is of, and that `object` is unused memory.
unsafe fn construct_object(callbacks: usize, object: NonNull<u8>) -> bool {
    // SAFETY: the cache calls this, so its handle is not destroyed. The header requires that
    // `construct` may be called with any unused object, on any thread that uses the cache.
    let code = unsafe {
        let callbacks = Callbacks::at(callbacks);
        (callbacks.construct)(object.cast().as_ptr(), callbacks.context)
    };
    if code != 0 {
        last_error::note_constructor(code);
    }
    code == 0
}

/// Destroys an object, as the destructor of a `Lifecycle`.
///
/// # Safety
///
/// The caller guarantees that `callbacks` is the address of the callbacks of the cache that
/// `object` is of, and that `object` is constructed, and not used after this.
unsafe fn destroy_object(callbacks: usize, object: NonNull<u8>) {
    // SAFETY: the cache calls this, so its handle is not destroyed. The header requires that
    // `destroy` may be called for each object that `construct` made, on any thread that uses the
    // cache.
    unsafe {
        let callbacks = Callbacks::at(callbacks);
        if let Some(destroy) = callbacks.destroy {
            destroy(object.cast().as_ptr(), callbacks.context);
        }
    }
}

/// Creates a cache of objects of `bytes` bytes and stores its handle in `*cache`.
///
/// `bytes` is at most 8 less than `THISCPU_CACHE_SIZE_MAX`. `align` is the alignment of objects: a
/// power of two, at most `THISCPU_CACHE_ALIGN_MAX`. Both callbacks are called with `context`.
///
/// - NULL: allowed for `destroy`, if objects need no destruction, and for `context`, which is only
///   passed on.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `UNKNOWN_TIER`, `TIER_UNAVAILABLE`; `INVALID_SIZE`
///   if `bytes` or `align` is not supported.
/// - Blocks: only in the first use of the library, while another thread determines the tier.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_constructed_cache_create(
    bytes: usize,
    align: usize,
    construct: Option<
        unsafe extern "C-unwind" fn(object: *mut c_void, context: *mut c_void) -> c_int,
    >,
    destroy: Option<unsafe extern "C-unwind" fn(object: *mut c_void, context: *mut c_void)>,
    context: *mut c_void,
    cache: *mut *mut ThiscpuConstructedCache,
) -> Status {
    let new = |at: *mut ThiscpuConstructedCache| {
        let layout = Layout::from_size_align(bytes, align).map_err(|_| Status::InvalidSize)?;
        if !RawConstructedCache::supports(layout) {
            return Err(Status::InvalidSize);
        }
        let construct = construct.ok_or(Status::NullPointer)?;
        thiscpu::tier()?;
        let callbacks = at.expose_provenance() + offset_of!(ThiscpuConstructedCache, callbacks);
        // SAFETY: `callbacks` is where `create_at` puts the callbacks of this cache, whatever the
        // content of an object. The cache calls each function as they require, until its handle is
        // destroyed.
        let lifecycle = unsafe { Lifecycle::new(callbacks, construct_object, destroy_object) };
        let cache = RawConstructedCache::new(layout, lifecycle);
        Ok(ThiscpuConstructedCache { cache, callbacks: Callbacks { construct, destroy, context } })
    };
    // SAFETY: the header requires that `cache` is null or valid for writes.
    unsafe { create_at(cache, new) }
}

/// Closes a cache, destroys its objects and frees its memory, unless any is still allocated.
///
/// Stores the number of objects that are still allocated in `*objects`: 0 if the cache is closed.
/// No other thread may use the handle during this call, and no thread after it has returned `OK`.
///
/// - NULL: allowed for `objects`. If `cache` is NULL, the call stores 0 and returns `OK`.
/// - Returns: `OK`; `IN_USE` if objects are still allocated (the handle stays valid).
/// - Blocks: for a fence, for callbacks, and while another thread allocates or frees per-CPU
///   memory.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_constructed_cache_close(
    cache: *mut ThiscpuConstructedCache,
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
        let closed = unsafe { close(cache) };
        if let Some(out) = out {
            out.write(closed.err().unwrap_or(0));
        }
        closed.map_err(|_| Status::InUse)
    })
}

/// Closes a cache; or else returns how many of its objects are still allocated.
///
/// # Safety
///
/// The handle is null or live, and no other thread uses it. After `Ok` no thread may use it.
unsafe fn close(cache: *mut ThiscpuConstructedCache) -> Result<(), usize> {
    let Some(handle) = NonNull::new(cache) else { return Ok(()) };
    // SAFETY: the caller guarantees that the handle is live and that no other thread uses it.
    // `create` made the handle. `ManuallyDrop` keeps the cache, which is released, from being
    // released again; the callbacks have no destructor.
    unsafe {
        handle.as_ref().cache.release()?;
        free(handle.cast::<ManuallyDrop<ThiscpuConstructedCache>>());
    }
    Ok(())
}

/// Destroys a cache even if objects are still allocated; these stay valid forever.
///
/// Such objects can no longer be freed. They are never destroyed, and free objects in their slabs
/// may not be. No thread may use the handle during or after this call.
///
/// - NULL: allowed; does nothing.
/// - Returns: `OK`.
/// - Blocks: for a fence, for callbacks, and while another thread allocates or frees per-CPU
///   memory.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_constructed_cache_destroy(
    cache: *mut ThiscpuConstructedCache,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and that no thread uses it any
    // more.
    unsafe { destroy(cache) }
}

/// Why a cache has allocated no object.
enum NoObject {
    Memory,
    /// The number that the constructor returned.
    Constructor(i32),
}

impl NoObject {
    /// Notes the reason, and returns its status.
    fn note(self) -> Status {
        match self {
            NoObject::Memory => Status::NoMemory,
            NoObject::Constructor(code) => {
                last_error::note_constructor(code);
                Status::ConstructFailed
            }
        }
    }
}

impl ThiscpuConstructedCache {
    fn alloc(&self) -> Result<NonNull<u8>, NoObject> {
        // The constructor was the last of the program's code to run, so its note is the last one.
        let none =
            || last_error::take_constructor().map_or(NoObject::Memory, NoObject::Constructor);
        self.cache.alloc().ok_or_else(none)
    }
}

/// Allocates an object, which is new or as its last user left it.
///
/// Costs one restartable sequence if this CPU keeps a free object.
///
/// - NULL: not allowed.
/// - Returns: the object, not a status; NULL on lack of memory, if `construct` failed, or if
///   `cache` is NULL or misaligned. `thiscpu_last_error` tells which.
/// - Blocks: if this CPU keeps no free object, for callbacks, and while other threads trade objects
///   or get memory.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_constructed_cache_alloc(
    cache: *mut ThiscpuConstructedCache,
) -> *mut c_void {
    let mut object = None;
    // A failed call leaves no object.
    catch(|| {
        // SAFETY: the header requires that the handle is null or live.
        object = Some(unsafe { deref(cache) }?.alloc().map_err(NoObject::note)?);
        Ok(())
    });
    object.map_or(null_mut(), |object| object.cast().as_ptr())
}

/// Frees an object of the cache, which stays constructed, on any thread.
///
/// The object must be from this cache and must not be used any more. Costs one restartable sequence
/// if this CPU has room for it.
///
/// - NULL: allowed for `object`, which then does nothing; not for `cache`.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: if this CPU has no room, for callbacks, and while other threads trade objects or
///   return memory.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_constructed_cache_free(
    cache: *mut ThiscpuConstructedCache,
    object: *mut c_void,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live.
        let cache = unsafe { deref(cache) }?;
        if let Some(object) = NonNull::new(object) {
            // SAFETY: the header requires that the object is from this cache and no longer used.
            unsafe { cache.cache.free(object.cast()) };
        }
        Ok(())
    })
}

/// Destroys the objects of all slabs without an object in use, and returns their memory.
///
/// Also returns free memory of other caches to the system. Stores the number of returned bytes in
/// `*bytes`. If another thread is destroying objects, it destroys these too, and this call does not
/// wait for it. Costs one fence. If no fence is possible, CPUs keep their objects, and the call
/// returns `OK`.
///
/// - NULL: allowed for `bytes`; not for `cache`.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: for a fence, for callbacks, and while other threads trade objects.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_constructed_cache_shrink(
    cache: *mut ThiscpuConstructedCache,
    bytes: *mut usize,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live, and `bytes` null or valid
        // for writes.
        let (cache, out) = unsafe { (deref(cache)?, OutParam::optional(bytes)?) };
        let returned = cache.cache.shrink();
        if let Some(out) = out {
            out.write(returned);
        }
        Ok(())
    })
}

/// Stores statistics of the cache in `*stats`. Visits each of its slabs.
///
/// The bytes of an object include the word behind it.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_constructed_cache_stats(
    cache: *mut ThiscpuConstructedCache,
    stats: *mut ThiscpuCacheStats,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `stats` null or valid for
    // writes.
    unsafe { write(cache, stats, |cache| Ok(cache.cache.stats().into())) }
}

/// Allocates `n` objects in advance, for code in which an allocation must not fail.
///
/// Stores the handle of the objects in `*prefilled`. The objects are constructed.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`; `NO_MEMORY` or `CONSTRUCT_FAILED`, and then none of the
///   objects is kept.
/// - Blocks: as `thiscpu_constructed_cache_alloc` does.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_constructed_cache_prefill(
    cache: *mut ThiscpuConstructedCache,
    n: usize,
    prefilled: *mut *mut ThiscpuPrefilled,
) -> Status {
    let new = || {
        // SAFETY: the header requires that the handle is null or live, and that the cache outlives
        // the objects, whose handle alone gets this reference.
        let cache: &'static ThiscpuConstructedCache = unsafe { deref(cache) }?;
        // The reason is noted after the objects are freed, which may run callbacks.
        let objects = cache.cache.prefill(n, || cache.alloc()).map_err(NoObject::note)?;
        Ok(ThiscpuPrefilled::new(objects))
    };
    // SAFETY: the header requires that `prefilled` is null or valid for writes.
    unsafe { create(prefilled, new) }
}

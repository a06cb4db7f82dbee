//! A cache of objects of one layout.

use core::alloc::Layout;
use core::fmt;
use core::ptr::NonNull;

use super::arena;
use super::arena::purge;
#[cfg(thiscpu_model)]
use super::class::DirectUse;
use super::class::{self, Class, Group, Handle};
use crate::section::Single;

/// Objects of one layout, allocated and freed on any CPU in about a nanosecond.
///
/// Works as the kernel's `kmem_cache` does with per-CPU sheaves (Linux 6.18). Each CPU keeps two
/// arrays of free objects, its *sheaves*. [`alloc`](RawCache::alloc) pops an object from one of
/// them and [`free`](RawCache::free) pushes one, each in one section: without a lock or an atomic
/// instruction. When both sheaves are empty, or full, the CPU trades a whole sheaf with a barn that
/// some CPUs of its NUMA node share. Behind the barns are slabs, in that node's memory. Any thread
/// may free any object; an object of another node returns there when its sheaf is traded.
///
/// | | cost | waits for |
/// |---|---|---|
/// | `alloc`, `free` in the lane | one section | nothing |
/// | a trade, once in 4 to 1,020 calls | two locks, usually < 1 µs | threads that trade now |
/// | a trade that needs memory | a system call | threads that trade now |
/// | `shrink`, `close`, drop | a fence, and a visit to everything free | each other |
///
/// # Heap errors
///
/// The first word of a free object says that it is free. So the cache detects a double free, the
/// free of an address that is not an object of the cache, and a write to a free object. It detects
/// a wrong free at once, or when the sheaf returns to the slabs, and the write when the object is
/// allocated again. Then it aborts the process, with a message that names the address. Sheaves hold
/// encoded pointers only.
///
/// # Where it can be used
///
/// In constants, thread-local destructors, and children of `fork`. A child loses what a thread of
/// its parent was trading at that moment, at most a sheaf. **Do not use a cache in signal
/// handlers**, which may have interrupted a trade.
///
/// A cache has a little over 2 KiB on x86-64, and takes more memory at its first use. Slabs stay
/// mapped forever, so a late reader of a freed object never faults; their pages return to the
/// system.
///
/// ```
/// use std::alloc::Layout;
///
/// static BUFFERS: thiscpu::RawCache = thiscpu::RawCache::new(Layout::new::<[u64; 8]>());
///
/// let buffer = BUFFERS.alloc().expect("no memory");
/// // SAFETY: `buffer` is from this cache and no longer used.
/// unsafe { BUFFERS.free(buffer) };
/// ```
#[repr(C)]
pub struct RawCache {
    pub(super) group: Group,
    pub(super) class: Class,
}

/// Offsets of a cache's gate and its key, for code in other languages.
pub const GATE_AND_KEY_OFFSETS: [usize; 2] =
    [core::mem::offset_of!(RawCache, group.gate), core::mem::offset_of!(RawCache, group.key)];

impl RawCache {
    /// The largest size of an object: 1 MiB.
    pub const SIZE_MAX: usize = class::SIZE_MAX;
    /// The largest alignment of an object, in bytes.
    pub const ALIGN_MAX: usize = class::ALIGN_MAX;

    /// Creates an empty cache of objects of that layout, each at least 8 bytes.
    ///
    /// # Panics
    ///
    /// If the layout has more than [`SIZE_MAX`](RawCache::SIZE_MAX) bytes, or an alignment of more
    /// than [`ALIGN_MAX`](RawCache::ALIGN_MAX). In a constant, this is a compile error.
    #[must_use]
    pub const fn new(layout: Layout) -> RawCache {
        let class = Class::new(layout.size(), layout.align(), arena::ANY_CACHE);
        RawCache { group: Group::with_direct_table(), class }
    }

    /// Creates a cache with a direct table.
    ///
    /// Other modeled caches have none, because each step of a call multiplies the orders to
    /// explore.
    #[cfg(thiscpu_model)]
    #[must_use]
    pub const fn direct(layout: Layout) -> RawCache {
        let class = Class::new(layout.size(), layout.align(), arena::ANY_CACHE);
        RawCache { group: Group::direct_in_model(), class }
    }

    /// Creates a cache that uses malloc's direct table, as malloc's classes do.
    ///
    /// # Safety
    ///
    /// The caller guarantees that there is only one such cache, and that it is never dropped.
    #[cfg(thiscpu_model)]
    #[must_use]
    pub const unsafe fn for_malloc(layout: Layout) -> RawCache {
        let class = Class::new(layout.size(), layout.align(), arena::ANY_CACHE);
        // SAFETY: the caller guarantees that there is only one such cache, and that it is never
        // dropped.
        RawCache { group: unsafe { Group::for_malloc(1) }, class }
    }

    /// Unpublishes the item, so that each index needs a slower call to publish it again.
    #[cfg(thiscpu_model)]
    pub fn unpublish_direct(&self) {
        self.group.set_direct_enabled(false);
        self.group.set_direct_enabled(true);
    }

    /// Enables the direct path for the calling thread, as a slower call does.
    #[cfg(thiscpu_model)]
    pub fn enable_direct(&self) {
        self.group.enable_direct();
    }

    #[inline(always)]
    pub(super) fn handle(&self) -> Handle<'_, Single> {
        self.group.single(&self.class)
    }

    /// Returns the bytes of an object.
    ///
    /// That is its size, at least 8, rounded up to its alignment and to 8.
    #[must_use]
    pub const fn object_bytes(&self) -> usize {
        self.class.shape.size
    }

    /// Allocates an object; returns `None` if there is no memory.
    ///
    /// The object is uninitialized, except for its first 8 bytes, which are 0.
    ///
    /// # Panics
    ///
    /// If `THISCPU_TIER` has a wrong value.
    #[inline(always)]
    pub fn alloc(&self) -> Option<NonNull<u8>> {
        #[cfg(thiscpu_model)]
        match self.group.direct_use {
            DirectUse::None => return self.alloc_gated(),
            DirectUse::Own => {}
            DirectUse::Malloc => {
                // SAFETY: `DirectUse::Malloc` says that the group was created by
                // `Group::for_malloc`.
                let malloc = unsafe { self.group.direct_malloc(&self.class, 0) };
                return malloc.alloc_or(|| self.alloc_gated());
            }
        }
        self.group.direct(&self.class).alloc_or(|| self.alloc_gated())
    }

    pub(crate) fn hand_out(&self, encoded: usize) -> Option<NonNull<u8>> {
        self.handle().hand_out(encoded)
    }

    // The arguments of these functions are those of `alloc` and `free`, so that a call moves
    // nothing before it jumps here.

    /// Allocates for a call whose fast path failed, of any cache.
    #[cold]
    #[inline(never)]
    pub(super) fn alloc_gated(&self) -> Option<NonNull<u8>> {
        #[cfg(thiscpu_model)]
        if self.group.direct_use == DirectUse::Malloc {
            return self.group.handle(&self.class, 0).alloc_gated();
        }
        self.handle().alloc_gated()
    }

    /// Frees for a call whose fast path failed, of any cache. The object is marked as free.
    ///
    /// # Safety
    ///
    /// The caller guarantees that `object` is of this cache and no longer used.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn free_gated(&self, object: NonNull<u8>) {
        #[cfg(thiscpu_model)]
        if self.group.direct_use == DirectUse::Malloc {
            // SAFETY: the caller guarantees that `object` is of this cache and no longer used.
            return unsafe { self.group.handle(&self.class, 0).free_gated(object) };
        }
        // SAFETY: the caller guarantees that `object` is of this cache and no longer used.
        unsafe { self.handle().free_gated(object) };
    }

    /// Frees an object, on any thread.
    ///
    /// # Safety
    ///
    /// The caller guarantees that `object` is from this cache and no longer used. A violation is
    /// detected in most cases; the process then aborts with a message.
    #[inline(always)]
    pub unsafe fn free(&self, object: NonNull<u8>) {
        #[cfg(thiscpu_model)]
        match self.group.direct_use {
            // SAFETY: the caller guarantees that `object` is of this cache and no longer used.
            DirectUse::None => {
                return unsafe {
                    self.handle().free_or(object, || self.handle().free_slow(object));
                };
            }
            DirectUse::Own => {}
            // SAFETY: `DirectUse::Malloc` says that the group was created by `Group::for_malloc`.
            // The caller guarantees that `object` is of this cache and no longer used.
            DirectUse::Malloc => {
                return unsafe {
                    let malloc = self.group.direct_malloc(&self.class, 0);
                    malloc.free_or(object, || self.free_gated(object));
                };
            }
        }
        // SAFETY: the caller guarantees that `object` is of this cache and no longer used.
        unsafe { self.group.direct(&self.class).free_or(object, || self.free_gated(object)) };
    }

    /// Returns all free memory to the system, and reports how many bytes that was.
    ///
    /// Flushes lanes and barns into slabs, then drops the pages of empty slabs, those of other
    /// caches included. Takes one fence; meanwhile, calls of `alloc` and `free` bypass their lanes.
    /// If a sandbox has denied both membarrier and `sched_setaffinity` since the start, lanes keep
    /// what they hold.
    pub fn shrink(&self) -> usize {
        self.handle().shrink();
        purge::purge()
    }

    /// Closes the cache, and leaves all of its memory to others.
    ///
    /// # Errors
    ///
    /// [`CacheInUse`] if objects are still allocated: it holds their number, and returns the cache
    /// unchanged.
    #[expect(
        clippy::result_large_err,
        reason = "the cache is returned in the error, and a box might allocate from it"
    )]
    pub fn close(self) -> Result<(), CacheInUse> {
        let released = self.release();
        CacheInUse::unless_released(self, released)
    }

    /// Frees all memory; if objects are still allocated, returns how many instead.
    pub(super) fn release(&self) -> Result<(), usize> {
        let Some(backend) = self.class.backend_if_used() else {
            // The group may have lanes although there was no memory for a backend.
            self.group.close();
            return Ok(());
        };
        // This thread holds no lock here.
        purge::purge_freed_by(|| self.handle().shrink());
        match backend.objects_outside_slabs_locked() {
            0 => {
                backend.wait_for_unlock();
                self.group.close();
                self.class.close(backend);
                Ok(())
            }
            objects => Err(objects),
        }
    }
}

impl fmt::Debug for RawCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawCache")
            .field("object_bytes", &self.object_bytes())
            .finish_non_exhaustive()
    }
}

/// The error of closing a cache whose objects are still allocated.
#[derive(Debug)]
#[non_exhaustive]
pub struct CacheInUse<C = RawCache> {
    /// The cache, unchanged.
    pub cache: C,
    /// Number of objects still allocated.
    pub objects: usize,
}

impl<C> CacheInUse<C> {
    /// Forgets a cache that was released; returns one that was not.
    pub(super) fn unless_released(
        cache: C,
        released: Result<(), usize>,
    ) -> Result<(), CacheInUse<C>> {
        match released {
            Ok(()) => {
                core::mem::forget(cache);
                Ok(())
            }
            Err(objects) => Err(CacheInUse { cache, objects }),
        }
    }
}

impl<C> fmt::Display for CacheInUse<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot close the cache: {} of its objects are still allocated; free them first, or \
             drop the cache to leave them where they are",
            self.objects
        )
    }
}

impl<C: fmt::Debug> std::error::Error for CacheInUse<C> {}

impl Drop for RawCache {
    /// Closes the cache.
    ///
    /// Objects that are still allocated stay valid forever, with their slabs. A debug build says so
    /// in a line on standard error.
    fn drop(&mut self) {
        if let Err(objects) = self.release() {
            report_leak(objects, self.object_bytes());
        }
    }
}

/// Reports objects that a dropped cache left allocated, in debug builds.
pub(super) fn report_leak(objects: usize, size: usize) {
    if cfg!(debug_assertions) && !cfg!(thiscpu_model) {
        eprintln!(
            "thiscpu: dropped a cache of {size}-byte objects with {objects} still allocated; they \
             stay valid"
        );
    }
}

//! A cache of one layout, and ending it.

use core::alloc::Layout;
use core::fmt;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use super::arena;
use super::arena::purge;
#[cfg(thiscpu_model)]
use super::class::DirectUse;
use super::class::{self, Class, Group, Handle};
use crate::section::Single;

/// Objects of one layout, allocated and freed on any CPU at about a nanosecond each: the kernel's `kmem_cache`, with its
/// per-CPU sheaves (Linux 6.18).
///
/// Each CPU keeps two arrays of free objects, its *sheaves*. [`alloc`](RawCache::alloc) takes the uppermost entry of one,
/// [`free`](RawCache::free) puts one on top, each in one section: no lock, no atomic instruction. When both
/// are empty, or full, a whole sheaf is traded with a store that the CPUs of a NUMA node share; behind that are
/// slabs, in that node's memory. Any thread may free any object; objects of another node go back there when sheaves are traded.
///
/// | | cost | waits for |
/// |---|---|---|
/// | `alloc`, `free` in the lane | one section | nobody |
/// | a trade, once in 4 to 1,020 calls | two locks, as a rule for less than a microsecond; longer where the system is asked for memory | who trades at the same moment |
/// | `shrink`, `close`, drop | a fence, and a look at all that is free | each other |
///
/// A free object's first word says that it is free: to free it again, or an address that is no object of the cache, is noticed
/// (at once, or when the sheaf comes back to the slabs), and so is a write to a free object when it is handed out again. The process
/// is then ended with a message that names the address. A sheaf holds encoded addresses only.
///
/// `const`-constructible; a little over 2 KiB by itself on x86-64, and takes more memory when it is first used. Usable from thread-local
/// destructors and in children of `fork`; a child loses what a thread of its parent was trading at that moment, at most a sheaf. **Not to
/// be used from signal handlers**, which may have interrupted a trade. Slabs are mapped for ever, so that a late reader of a freed object never faults; their pages go
/// back to the system.
///
/// ```
/// use std::alloc::Layout;
///
/// static BUFFERS: thiscpu::RawCache = thiscpu::RawCache::new(Layout::new::<[u64; 8]>());
///
/// let buffer = BUFFERS.alloc().expect("no memory");
/// // SAFETY: it is from there, and not used any more.
/// unsafe { BUFFERS.free(buffer) };
/// ```
#[repr(C)]
pub struct RawCache {
    pub(super) group: Group,
    pub(super) class: Class,
}

/// Where a cache's gate and its key are, for code that is no Rust.
pub const GATE_AND_KEY_OFFSETS: [usize; 2] =
    [core::mem::offset_of!(RawCache, group.gate), core::mem::offset_of!(RawCache, group.key)];

impl RawCache {
    /// The most bytes that an object can have, a mebibyte.
    pub const SIZE_MAX: usize = class::SIZE_MAX;
    /// The largest alignment that objects can have, in bytes.
    pub const ALIGN_MAX: usize = class::ALIGN_MAX;

    /// A cache of objects of that layout, each at least 8 bytes.
    ///
    /// # Panics
    ///
    /// If the layout has more than [`SIZE_MAX`](RawCache::SIZE_MAX) bytes or an alignment of more than
    /// [`ALIGN_MAX`](RawCache::ALIGN_MAX); in a constant, when that is compiled.
    #[must_use]
    pub const fn new(layout: Layout) -> RawCache {
        let class = Class::new(layout.size(), layout.align(), arena::ANY_CACHE);
        RawCache { group: Group::with_direct_table(), class }
    }

    /// A cache with a front of its own, which others have not in the model, for that has an order more for each step that there is.
    #[cfg(thiscpu_model)]
    #[must_use]
    pub const fn direct(layout: Layout) -> RawCache {
        let class = Class::new(layout.size(), layout.align(), arena::ANY_CACHE);
        RawCache { group: Group::direct_in_model(), class }
    }

    /// A cache that is found at the front, as malloc's classes are.
    ///
    /// # Safety
    ///
    /// There is one.
    #[cfg(thiscpu_model)]
    #[must_use]
    pub const unsafe fn for_malloc(layout: Layout) -> RawCache {
        let class = Class::new(layout.size(), layout.align(), arena::ANY_CACHE);
        // SAFETY: the caller's promise.
        RawCache { group: unsafe { Group::for_malloc(1) }, class }
    }

    /// Has calls find it at the front no more, each until it has come there again.
    #[cfg(thiscpu_model)]
    pub fn unpublish_direct(&self) {
        self.group.set_direct_enabled(false);
        self.group.set_direct_enabled(true);
    }

    /// Lets the calling thread find it there, as calls do that have not.
    #[cfg(thiscpu_model)]
    pub fn enable_direct(&self) {
        self.group.enable_direct();
    }

    #[inline(always)]
    pub(super) fn handle(&self) -> Handle<'_, Single> {
        self.group.single(&self.class)
    }

    /// The bytes of an object: its size, at least 8, rounded up to its alignment, and to 8.
    #[must_use]
    pub const fn object_bytes(&self) -> usize {
        self.class.shape.size
    }

    /// An object that nobody else has, uninitialized but for its first 8 bytes, which are 0. `None` if there is no
    /// memory.
    ///
    /// # Panics
    ///
    /// If `THISCPU_TIER` is wrong.
    #[inline(always)]
    pub fn alloc(&self) -> Option<NonNull<u8>> {
        #[cfg(thiscpu_model)]
        match self.group.direct_use {
            DirectUse::None => return self.alloc_gated(),
            DirectUse::Own => {}
            DirectUse::Malloc => {
                // SAFETY: just looked at.
                let front = unsafe { self.group.direct_malloc(&self.class, 0) };
                return front.alloc_or(|| self.alloc_gated());
            }
        }
        self.group.direct(&self.class).alloc_or(|| self.alloc_gated())
    }

    pub(crate) fn hand_out(&self, encoded: usize) -> Option<NonNull<u8>> {
        self.handle().hand_out(encoded)
    }

    // The arguments are those of the calls that lead here, so that a call moves nothing before it jumps.

    /// Allocates by the gate, or from behind the lane. For calls that the fast path has failed, of any cache.
    #[cold]
    #[inline(never)]
    pub(super) fn alloc_gated(&self) -> Option<NonNull<u8>> {
        #[cfg(thiscpu_model)]
        if self.group.direct_use == DirectUse::Malloc {
            return self.group.handle(&self.class, 0).alloc_gated();
        }
        self.handle().alloc_gated()
    }

    /// Frees by the gate, or behind the lane. For calls that the fast path has failed, of any cache.
    ///
    /// # Safety
    ///
    /// The caller guarantees that `object` is of this cache and no longer used. It is marked as free.
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
    /// The object is from this cache, and nobody uses it any more. (What is not, is noticed sooner or later, and ends the process
    /// with a message.)
    #[inline(always)]
    pub unsafe fn free(&self, object: NonNull<u8>) {
        #[cfg(thiscpu_model)]
        match self.group.direct_use {
            // SAFETY: the caller's promise.
            DirectUse::None => {
                return unsafe {
                    self.handle().free_or(object, || self.handle().free_slow(object));
                };
            }
            DirectUse::Own => {}
            // SAFETY: just looked at, and the caller's promise.
            DirectUse::Malloc => {
                return unsafe {
                    let front = self.group.direct_malloc(&self.class, 0);
                    front.free_or(object, || self.free_gated(object));
                };
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.group.direct(&self.class).free_or(object, || self.free_gated(object)) };
    }
}

impl RawCache {
    /// Gives what is free back: lanes and shared stores are emptied into their slabs, and the pages of all slabs
    /// without an object go back to the system, those of other caches too. How many bytes that were.
    ///
    /// For the time of one fence calls of `alloc` and `free` do without their lanes. Where a sandbox has taken away both membarrier
    /// and `sched_setaffinity` after the start, lanes keep what they have.
    pub fn shrink(&self) -> usize {
        self.handle().shrink();
        purge::purge()
    }

    /// Ends the cache: all of its memory is free for others.
    ///
    /// # Errors
    ///
    /// If objects are still out; the error says how many, and has the cache, unharmed.
    #[expect(
        clippy::result_large_err,
        reason = "a cache that is not closed is given back, and a box might allocate from it"
    )]
    pub fn close(self) -> Result<(), CacheInUse> {
        match self.release() {
            Ok(()) => {
                let _ = ManuallyDrop::new(self);
                Ok(())
            }
            Err(objects) => Err(CacheInUse { cache: self, objects }),
        }
    }

    /// Gives all memory back if no object is out; else says how many are.
    pub(super) fn release(&self) -> Result<(), usize> {
        let Some(backend) = self.class.backend_if_used() else {
            // It may have lanes, and found no memory for what is behind them.
            self.group.close();
            return Ok(());
        };
        self.handle().shrink();
        // Here this thread holds no lock.
        purge::purge_if_excess();
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

/// A cache cannot be closed: objects are still out.
#[derive(Debug)]
#[non_exhaustive]
pub struct CacheInUse<C = RawCache> {
    /// The cache, as it was.
    pub cache: C,
    /// How many objects are out.
    pub objects: usize,
}

impl<C> fmt::Display for CacheInUse<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the cache cannot be closed: {} of its objects are still out; free them first, or drop the cache to leave \
             them where they are",
            self.objects
        )
    }
}

impl<C: fmt::Debug> std::error::Error for CacheInUse<C> {}

impl Drop for RawCache {
    /// Ends the cache. If objects are out they stay valid for ever, with their slabs; in debug builds a line on standard
    /// error says so.
    fn drop(&mut self) {
        if let Err(objects) = self.release() {
            report_leak(objects, self.object_bytes());
        }
    }
}

/// In debug builds.
pub(super) fn report_leak(objects: usize, size: usize) {
    if cfg!(debug_assertions) && !cfg!(thiscpu_model) {
        eprintln!(
            "thiscpu: a cache of {size}-byte objects was dropped while {objects} were out; they stay"
        );
    }
}

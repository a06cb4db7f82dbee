//! A cache of one type, whose objects free themselves.

use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::{self, NonNull};

use super::raw::{CacheInUse, RawCache, report_leak};
use super::stats::CacheStats;
use crate::sys::atomic::{
    AtomicPtr,
    Ordering::{AcqRel, Acquire, Relaxed},
};

/// Objects of one type, allocated and freed on any CPU at about a nanosecond each.
///
/// ```
/// struct Request {
///     id: u64,
///     path: [u8; 100],
/// }
///
/// static REQUESTS: thiscpu::Cache<Request> = thiscpu::Cache::new();
///
/// let mut request = REQUESTS.alloc(Request { id: 1, path: [0; 100] });
/// request.id += 1;
/// // FreeOnDrop where it is dropped, on whatever thread that is.
/// std::thread::spawn(move || assert_eq!(request.id, 2)).join().unwrap();
/// ```
///
/// It is a [`RawCache`] of `T`'s layout, which says what it costs, whom it may block and from where it may be called. Objects do not
/// borrow the cache. If it is dropped while some are out, those stay valid, and are dropped by their owners, but their memory is
/// used no more (debug builds say so); [`close`](Cache::close) tells.
pub struct Cache<T> {
    raw: LazyRawCache,
    holds: PhantomData<fn(T) -> T>,
}

/// A raw cache that is made at the first use, because objects must find it wherever what has this is moved to.
pub(super) struct LazyRawCache(AtomicPtr<RawCache>);

/// Where those are.
static RAW_CACHES: RawCache = RawCache::new(Layout::new::<RawCache>());

impl LazyRawCache {
    pub(super) const fn new() -> LazyRawCache {
        LazyRawCache(AtomicPtr::new(ptr::null_mut()))
    }

    /// The cache. `None` if there is no memory.
    #[inline(always)]
    pub(super) fn get(&self, make: impl FnOnce() -> RawCache) -> Option<&'static RawCache> {
        self.if_used().or_else(|| self.begin(make))
    }

    #[inline(always)]
    pub(super) fn if_used(&self) -> Option<&'static RawCache> {
        // Acquire: pairs with the AcqRel in `begin`; the cache is whole.
        // SAFETY: it stays until it was found that no object is out, by `release`, which nobody else outlives.
        unsafe { self.0.load(Acquire).as_ref() }
    }

    #[cold]
    fn begin(&self, make: impl FnOnce() -> RawCache) -> Option<&'static RawCache> {
        let new = RAW_CACHES.alloc()?.cast::<RawCache>();
        // SAFETY: it is of that layout, and nobody else's.
        unsafe { new.write(make()) };
        // AcqRel: pairs with the Acquire in `if_used`.
        match self.0.compare_exchange(ptr::null_mut(), new.as_ptr(), AcqRel, Acquire) {
            // SAFETY: as in `if_used`.
            Ok(_) => Some(unsafe { new.as_ref() }),
            Err(first) => {
                // SAFETY: nobody has seen this one; as in `if_used`.
                unsafe {
                    RAW_CACHES.free(new.cast());
                    first.as_ref()
                }
            }
        }
    }

    /// Gives all memory back if no object is out; else says how many are. Nobody else uses it but to free objects.
    pub(super) fn release(&self) -> Result<(), usize> {
        let Some(raw) = self.if_used() else { return Ok(()) };
        raw.release()?;
        self.0.store(ptr::null_mut(), Relaxed);
        // SAFETY: it is from there, no object leads to it any more, and neither does this.
        unsafe { RAW_CACHES.free(NonNull::from(raw).cast()) };
        Ok(())
    }
}

impl<T> Cache<T> {
    /// An empty cache.
    ///
    /// # Panics
    ///
    /// As [`RawCache::new`].
    #[must_use]
    pub const fn new() -> Cache<T> {
        const { forget(RawCache::new(Layout::new::<T>())) };
        Cache { raw: LazyRawCache::new(), holds: PhantomData }
    }

    /// The raw cache, made at the first use. `None` if there is no memory.
    #[inline(always)]
    pub(super) fn raw(&self) -> Option<&'static RawCache> {
        self.raw.get(|| RawCache::new(Layout::new::<T>()))
    }

    /// Puts a value into an object.
    ///
    /// # Panics
    ///
    /// If `THISCPU_TIER` is wrong. Where there is no memory: as any allocation of Rust's, by
    /// [`handle_alloc_error`](std::alloc::handle_alloc_error). [`prefill`](Cache::prefill) has objects for where that must not happen.
    #[inline(always)]
    pub fn alloc(&self, value: T) -> CacheBox<T> {
        self.alloc_with(|| value)
    }

    /// The same for a value that is made once there is an object for it, in place if the compiler can.
    ///
    /// # Panics
    ///
    /// As [`alloc`](Cache::alloc), and as `make`; nothing is lost then.
    #[inline(always)]
    pub fn alloc_with(&self, make: impl FnOnce() -> T) -> CacheBox<T> {
        let slot =
            self.raw().and_then(|cache| Some(UninitObject { object: cache.alloc()?, cache }));
        match slot {
            Some(slot) => slot.fill(make),
            None => std::alloc::handle_alloc_error(Layout::new::<T>()),
        }
    }

    /// As [`RawCache::shrink`].
    pub fn shrink(&self) -> usize {
        self.raw.if_used().map_or(0, RawCache::shrink)
    }

    /// As [`RawCache::stats`].
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        self.raw.if_used().map_or_else(CacheStats::default, RawCache::stats)
    }

    /// Ends the cache: all of its memory is free for others.
    ///
    /// # Errors
    ///
    /// If objects are still out; the error says how many, and has the cache, unharmed.
    pub fn close(self) -> Result<(), CacheInUse<Cache<T>>> {
        match self.raw.release() {
            Ok(()) => {
                let _ = ManuallyDrop::new(self);
                Ok(())
            }
            Err(objects) => Err(CacheInUse { cache: self, objects }),
        }
    }
}

/// Looks at a cache that is only made to be looked at.
pub(super) const fn forget(cache: RawCache) {
    core::mem::forget(cache);
}

impl<T> Drop for Cache<T> {
    fn drop(&mut self) {
        if let Err(objects) = self.raw.release() {
            report_leak(objects, size_of::<T>());
        }
    }
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Cache::new()
    }
}

impl<T> fmt::Debug for Cache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("object_bytes", &size_of::<T>()).finish_non_exhaustive()
    }
}

/// An object without a value, which is freed when dropped.
pub(super) struct UninitObject {
    pub(super) object: NonNull<u8>,
    pub(super) cache: &'static RawCache,
}

impl UninitObject {
    #[inline(always)]
    pub(super) fn fill<T>(self, make: impl FnOnce() -> T) -> CacheBox<T> {
        // If it panics the slot is dropped.
        let value = make();
        let slot = ManuallyDrop::new(self);
        let object = slot.object.cast::<T>();
        // SAFETY: it is of `T`'s layout, and nobody else's.
        unsafe { object.write(value) };
        CacheBox { object, cache: slot.cache, owns: PhantomData }
    }
}

impl Drop for UninitObject {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: it is from there, and nobody else's.
        unsafe { self.cache.free(self.object) };
    }
}

/// An object of a [`Cache`]: dropped and freed when this is dropped, on any thread.
///
/// Freeing may trade a sheaf, which takes two locks, as a rule for less than a microsecond; it never allocates from Rust's allocator. Not to be
/// dropped in a signal handler.
pub struct CacheBox<T> {
    object: NonNull<T>,
    cache: &'static RawCache,
    owns: PhantomData<T>,
}

// SAFETY: it is the only way to its value, as a Box is.
unsafe impl<T: Send> Send for CacheBox<T> {}
// SAFETY: as for Send; shared, it gives shared access to the value.
unsafe impl<T: Sync> Sync for CacheBox<T> {}

impl<T> CacheBox<T> {
    /// The value; the object is freed.
    #[must_use]
    pub fn into_inner(self) -> T {
        let this = ManuallyDrop::new(self);
        let _slot = UninitObject { object: this.object.cast(), cache: this.cache };
        // SAFETY: the value is this object's, which is not used after this but to be freed.
        unsafe { this.object.read() }
    }
}

impl<T> Drop for CacheBox<T> {
    #[inline(always)]
    fn drop(&mut self) {
        // FreeOnDrop also when the value's own drop panics.
        let _slot = UninitObject { object: self.object.cast(), cache: self.cache };
        // SAFETY: the value is this object's, and not used after this.
        unsafe { self.object.drop_in_place() };
    }
}

impl<T> Deref for CacheBox<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the object holds a value, and this is the only way to it.
        unsafe { self.object.as_ref() }
    }
}

impl<T> DerefMut for CacheBox<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as for `deref`.
        unsafe { self.object.as_mut() }
    }
}

impl<T: fmt::Debug> fmt::Debug for CacheBox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

//! A cache of values of one type, which free themselves.

use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ptr::{self, NonNull};

use super::raw::{CacheInUse, RawCache, report_leak};
use super::stats::CacheStats;
use crate::sys::atomic::{
    AtomicPtr,
    Ordering::{AcqRel, Acquire, Relaxed},
};

/// Values of one type, allocated and freed on any CPU in about a nanosecond.
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
/// // The object is freed when it is dropped, on any thread.
/// std::thread::spawn(move || assert_eq!(request.id, 2)).join().unwrap();
/// ```
///
/// A `Cache` is a [`RawCache`] of `T`'s layout. That page says what calls cost, what they wait for,
/// and where they are allowed.
///
/// Objects do not borrow the cache. If the cache is dropped first, allocated objects stay valid and
/// are dropped by their owners, but their memory is not used again (a debug build says so).
/// [`close`](Cache::close) returns an error instead.
pub struct Cache<T> {
    raw: LazyRawCache,
    holds: PhantomData<fn(T) -> T>,
}

/// A raw cache that is created at its first use.
///
/// Its address is fixed, so objects find it even after its owner has moved.
pub(super) struct LazyRawCache(AtomicPtr<RawCache>);

/// The cache that lazily created raw caches live in.
static RAW_CACHES: RawCache = RawCache::new(Layout::new::<RawCache>());

impl LazyRawCache {
    pub(super) const fn new() -> LazyRawCache {
        LazyRawCache(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns the raw cache, made by `make` at the first use; `None` if there is no memory.
    #[inline(always)]
    pub(super) fn get_or_init(&self, make: impl FnOnce() -> RawCache) -> Option<&'static RawCache> {
        self.if_used().or_else(|| self.init(make))
    }

    #[inline(always)]
    pub(super) fn if_used(&self) -> Option<&'static RawCache> {
        // Acquire: pairs with the AcqRel in `init`, so that the cache is initialized. SAFETY: the
        // pointer is null or from `init`. The cache lives until `release` has found no object
        // allocated; its caller guarantees that no other thread uses it then.
        unsafe { self.0.load(Acquire).as_ref() }
    }

    #[cold]
    fn init(&self, make: impl FnOnce() -> RawCache) -> Option<&'static RawCache> {
        let new = RAW_CACHES.alloc()?.cast::<RawCache>();
        // SAFETY: the object has the layout of a `RawCache`, and only this thread has it.
        unsafe { new.write(make()) };
        // AcqRel: pairs with the Acquire in `if_used` and with that of a failed exchange.
        match self.0.compare_exchange(ptr::null_mut(), new.as_ptr(), AcqRel, Acquire) {
            // SAFETY: it was just initialized, and lives until `release`, as in `if_used`.
            Ok(_) => Some(unsafe { new.as_ref() }),
            Err(first) => {
                // SAFETY: no other thread has seen `new`. `first` was initialized by the thread
                // that stored it, and lives until `release`, as in `if_used`.
                unsafe {
                    RAW_CACHES.free(new.cast());
                    first.as_ref()
                }
            }
        }
    }

    /// Frees all memory; if objects are still allocated, returns how many instead.
    ///
    /// No other thread may use the cache meanwhile, except to free objects.
    pub(super) fn release(&self) -> Result<(), usize> {
        let Some(raw) = self.if_used() else { return Ok(()) };
        raw.release()?;
        self.0.store(ptr::null_mut(), Relaxed);
        // SAFETY: the raw cache is from `RAW_CACHES`. No object leads to it any more, and this
        // value does not either.
        unsafe { RAW_CACHES.free(NonNull::from(raw).cast()) };
        Ok(())
    }
}

impl<T> Cache<T> {
    /// Creates an empty cache.
    ///
    /// # Panics
    ///
    /// If `T` is larger than [`RawCache::SIZE_MAX`] or aligned to more than
    /// [`RawCache::ALIGN_MAX`]; this is a compile error.
    #[must_use]
    pub const fn new() -> Cache<T> {
        // Only to check the layout.
        const { core::mem::forget(RawCache::new(Layout::new::<T>())) };
        Cache { raw: LazyRawCache::new(), holds: PhantomData }
    }

    #[inline(always)]
    pub(super) fn raw(&self) -> Option<&'static RawCache> {
        self.raw.get_or_init(|| RawCache::new(Layout::new::<T>()))
    }

    /// Allocates an object for a value.
    ///
    /// # Panics
    ///
    /// If `THISCPU_TIER` has a wrong value. If there is no memory, calls
    /// [`handle_alloc_error`](std::alloc::handle_alloc_error), as Rust's allocations do;
    /// [`prefill`](Cache::prefill) provides objects for code in which that must not happen.
    #[inline(always)]
    pub fn alloc(&self, value: T) -> CacheBox<T> {
        self.alloc_with(|| value)
    }

    /// Allocates an object, then makes its value, in place if the compiler can.
    ///
    /// # Panics
    ///
    /// As [`alloc`](Cache::alloc) does, and if `make` does; the object is freed then.
    #[inline(always)]
    pub fn alloc_with(&self, make: impl FnOnce() -> T) -> CacheBox<T> {
        let object =
            self.raw().and_then(|cache| Some(UninitObject { object: cache.alloc()?, cache }));
        match object {
            Some(object) => object.fill(make),
            None => std::alloc::handle_alloc_error(Layout::new::<T>()),
        }
    }

    /// Returns all free memory to the system; see [`RawCache::shrink`].
    pub fn shrink(&self) -> usize {
        self.raw.if_used().map_or(0, RawCache::shrink)
    }

    /// Returns statistics of the cache; see [`RawCache::stats`].
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        self.raw.if_used().map_or_else(CacheStats::default, RawCache::stats)
    }

    /// Closes the cache, and leaves all of its memory to others.
    ///
    /// # Errors
    ///
    /// [`CacheInUse`] if objects are still allocated: it holds their number, and returns the cache
    /// unchanged.
    pub fn close(self) -> Result<(), CacheInUse<Cache<T>>> {
        let released = self.raw.release();
        CacheInUse::unless_released(self, released)
    }
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
        // If `make` panics, `self` is dropped and so frees the object.
        let value = make();
        let this = ManuallyDrop::new(self);
        let object = this.object.cast::<T>();
        // SAFETY: the object has `T`'s layout, because the cache is one of `T`s. Only this value
        // has it.
        unsafe { object.write(value) };
        CacheBox { object, cache: this.cache, owns: PhantomData }
    }
}

impl Drop for UninitObject {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the object is from this cache, and only this value has it.
        unsafe { self.cache.free(self.object) };
    }
}

/// A value in an object of a [`Cache`].
///
/// Dropping it drops the value and frees the object, on any thread. This may trade a sheaf, which
/// takes two locks and usually less than 1 µs. It never calls Rust's allocator. Do not drop one in
/// a signal handler.
pub struct CacheBox<T> {
    object: NonNull<T>,
    cache: &'static RawCache,
    owns: PhantomData<T>,
}

owning_pointer!(CacheBox);

impl<T> CacheBox<T> {
    /// Returns the value and frees the object.
    #[must_use]
    pub fn into_inner(self) -> T {
        let this = ManuallyDrop::new(self);
        let _freed = UninitObject { object: this.object.cast(), cache: this.cache };
        // SAFETY: the object holds a value, which this call moves out. After that the object is
        // only freed.
        unsafe { this.object.read() }
    }
}

impl<T> Drop for CacheBox<T> {
    #[inline(always)]
    fn drop(&mut self) {
        // The object is freed even if dropping the value panics.
        let _freed = UninitObject { object: self.object.cast(), cache: self.cache };
        // SAFETY: the object holds a value, which no one uses after this.
        unsafe { self.object.drop_in_place() };
    }
}

/// Implements for an owner of a value in an object all that `Box` has.
macro_rules! owning_pointer {
    ($Owner:ident) => {
        // SAFETY: it owns its value exclusively, as a `Box` does.
        unsafe impl<T: Send> Send for $Owner<T> {}
        // SAFETY: sharing it only gives shared access to the value, as for a `Box`.
        unsafe impl<T: Sync> Sync for $Owner<T> {}

        impl<T> core::ops::Deref for $Owner<T> {
            type Target = T;

            #[inline(always)]
            fn deref(&self) -> &T {
                // SAFETY: the object holds a value, and borrowing `self` is the only way to it.
                unsafe { self.object.as_ref() }
            }
        }

        impl<T> core::ops::DerefMut for $Owner<T> {
            #[inline(always)]
            fn deref_mut(&mut self) -> &mut T {
                // SAFETY: the object holds a value; borrowing `self` mutably is the only way to it.
                unsafe { self.object.as_mut() }
            }
        }

        impl<T: fmt::Debug> fmt::Debug for $Owner<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                (**self).fmt(f)
            }
        }
    };
}
pub(super) use owning_pointer;

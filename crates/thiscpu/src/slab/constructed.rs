//! A cache of objects that stay constructed while they are free.

use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::arena;
use super::cache::{LazyRawCache, forget};
use super::class::{Class, Group, Lifecycle};
use super::raw::{CacheInUse, RawCache, report_leak};
use super::stats::CacheStats;

/// Objects of one type that stay constructed while they are free: Bonwick's object caching.
///
/// What is expensive in an object, a buffer, a lock, a table, is made once, and whoever is handed the object next finds it. A
/// value is made by the cache's constructor when its memory is handed out first, and dropped when its memory goes back: when all
/// objects of a slab (64 KiB, or more for large ones) are free and the cache has enough of them, by [`shrink`](Self::shrink), and
/// by [`close`](Self::close).
///
/// **A value is as its last user left it.** Users leave it in the state in which the next expects it: empty, unlocked.
/// The cache does not reset it, and does not see whether that was done.
///
/// ```
/// use std::cell::Cell;
///
/// struct Connection {
///     buffer: Vec<u8>,
///     requests: Cell<u32>,
/// }
///
/// static CONNECTIONS: thiscpu::ConstructedCache<Connection> = thiscpu::ConstructedCache::new(|| Connection {
///     buffer: Vec::with_capacity(4096),
///     requests: Cell::new(0),
/// });
///
/// let mut connection = CONNECTIONS.alloc();
/// connection.buffer.extend_from_slice(b"GET /");
/// // For the next user, who need not allocate a buffer:
/// connection.buffer.clear();
/// drop(connection);
///
/// let next = CONNECTIONS.alloc();
/// assert!(next.buffer.is_empty() && next.buffer.capacity() >= 4096);
/// ```
///
/// | | cost | waits for |
/// |---|---|---|
/// | [`alloc`](Self::alloc), drop of a [`Constructed`], in the lane | one section | nobody |
/// | the first `alloc` of an object | the constructor | what that waits for |
/// | a trade, once in 4 to 1,020 calls | as for a [`RawCache`]; and who frees drops the values of slabs that are no longer needed, of two at most (of three where a slab has two or three objects, of five where it has one) | who trades at the same moment, and those drops |
///
/// Each object has a word of the cache behind it. Constructor and drop are called on any thread that uses the cache, and without any of
/// its locks, so they may use the cache themselves, and may panic: what a constructor was to make is free then, and a value whose drop
/// panics counts as dropped. A child of `fork` has its copies of all values; those of a slab that was going back, or in the hands of
/// a thread that is not in the child, are not dropped there. Not to be used from signal handlers.
///
/// A value must not own an object of its own cache: what it keeps out keeps a slab, which may be the one that it is in itself.
///
/// If the cache is dropped while objects are out, those stay valid, and other values in their slabs may never be dropped (debug
/// builds say so); [`close`](Self::close) tells.
pub struct ConstructedCache<T> {
    raw: LazyRawCache,
    make: fn() -> T,
    // Invariant, and neither Send nor Sync by itself.
    holds: PhantomData<*mut T>,
}

// SAFETY: values are handed out, and dropped, on whatever thread the cache is used, so they must be Send; all else in it is
// made to be shared.
unsafe impl<T: Send> Send for ConstructedCache<T> {}
// SAFETY: as above. Shared, the cache hands each value to one thread at a time, so a value need not be Sync.
unsafe impl<T: Send> Sync for ConstructedCache<T> {}

/// Constructs a value at `at`.
///
/// # Safety
///
/// `make` is the address of a `fn() -> T`; `at` is memory for a `T`, and nobody else's.
unsafe fn construct<T>(make: usize, at: NonNull<u8>) {
    let make = core::ptr::with_exposed_provenance::<()>(make);
    // SAFETY: the caller's promise; such an address and such a pointer are the same on these machines.
    unsafe {
        let make: fn() -> T = core::mem::transmute(make);
        at.cast::<T>().write(make());
    }
}

/// Ends the value at `at`.
///
/// # Safety
///
/// There is a `T`, which nobody uses after this.
unsafe fn destroy<T>(at: NonNull<u8>) {
    // SAFETY: the caller's promise.
    unsafe { at.cast::<T>().drop_in_place() };
}

impl<T> ConstructedCache<T> {
    /// An empty cache, whose objects `make` constructs.
    ///
    /// # Panics
    ///
    /// As [`RawCache::new`], for eight bytes more.
    #[must_use]
    pub const fn new(make: fn() -> T) -> ConstructedCache<T> {
        const {
            let layout = Layout::new::<T>();
            let size = layout.size().next_multiple_of(8) + 8;
            match Layout::from_size_align(size, layout.align()) {
                Ok(layout) => forget(RawCache::new(layout)),
                Err(_) => panic!("objects of a cache have at most a mebibyte"),
            }
        };
        ConstructedCache { raw: LazyRawCache::new(), make, holds: PhantomData }
    }

    fn make_raw(make: fn() -> T) -> RawCache {
        let layout = Layout::new::<T>();
        // SAFETY: the class's objects are for `T`s, and `make` is such a function.
        let lifecycle = unsafe {
            Lifecycle::new((make as *const ()).expose_provenance(), construct::<T>, destroy::<T>)
        };
        let class = Class::constructed(layout.size(), layout.align(), arena::ANY_CACHE, lifecycle);
        RawCache { group: Group::new(1), class }
    }

    /// An object with its value, which was made just now or is as its last user left it.
    ///
    /// # Panics
    ///
    /// If the constructor does; nothing is lost then. If `THISCPU_TIER` is wrong. Where there is no memory: as any allocation of
    /// Rust's, by [`handle_alloc_error`](std::alloc::handle_alloc_error).
    #[inline(always)]
    pub fn alloc(&self) -> Constructed<T> {
        let object = self.raw.get(|| Self::make_raw(self.make)).and_then(|cache| {
            let object = cache.handle().alloc_constructed_or(|| cache.alloc_gated())?;
            Some(Constructed { object: object.cast(), cache, owns: PhantomData })
        });
        match object {
            Some(object) => object,
            None => std::alloc::handle_alloc_error(Layout::new::<T>()),
        }
    }

    /// As [`RawCache::shrink`]; drops the values of all slabs without an object in use. If another thread is just dropping some,
    /// that one drops the others too, and this call does not wait for it.
    ///
    /// # Panics
    ///
    /// If the drop of a value does; a later call goes on after it.
    pub fn shrink(&self) -> usize {
        self.raw.if_used().map_or(0, RawCache::shrink)
    }

    /// As [`RawCache::stats`]. The bytes of an object include the word behind it.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        self.raw.if_used().map_or_else(CacheStats::default, RawCache::stats)
    }

    /// Ends the cache: drops all values, and all of its memory is free for others.
    ///
    /// # Errors
    ///
    /// If objects are still out; the error says how many, and has the cache, unharmed. What another thread is just freeing, or
    /// dropping the values of, counts as out.
    ///
    /// # Panics
    ///
    /// If the drop of a value does; the cache is dropped then, with the other values.
    pub fn close(self) -> Result<(), CacheInUse<ConstructedCache<T>>> {
        match self.release() {
            Ok(()) => {
                let _ = ManuallyDrop::new(self);
                Ok(())
            }
            Err(objects) => Err(CacheInUse { cache: self, objects }),
        }
    }

    /// As [`RawCache::release`], to the end whichever drops panic; then the first panic goes on.
    fn release(&self) -> Result<(), usize> {
        let mut panic = None;
        let result = loop {
            // Of a value whose drop panics nothing is used any more, and the cache is as if that had been no panic.
            match catch_unwind(AssertUnwindSafe(|| self.raw.release())) {
                Ok(result) => break result,
                Err(another) => panic = panic.or(Some(another)),
            }
        };
        match panic {
            Some(panic) => resume_unwind(panic),
            None => result,
        }
    }
}

impl<T> Drop for ConstructedCache<T> {
    fn drop(&mut self) {
        if let Err(objects) = self.release() {
            report_leak(objects, size_of::<T>());
        }
    }
}

impl<T> fmt::Debug for ConstructedCache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConstructedCache")
            .field("object_bytes", &size_of::<T>())
            .finish_non_exhaustive()
    }
}

/// An object of a [`ConstructedCache`]: freed when this is dropped, on any thread, with its value as it is then.
///
/// Freeing may trade a sheaf, which takes two locks, as a rule for less than a microsecond, and drop the values of slabs that are no longer
/// needed. One that is forgotten ([`core::mem::forget`]) stays out. Not to be dropped in a signal handler.
pub struct Constructed<T> {
    object: NonNull<T>,
    cache: &'static RawCache,
    owns: PhantomData<T>,
}

// SAFETY: it is the only way to its value, as a Box is.
unsafe impl<T: Send> Send for Constructed<T> {}
// SAFETY: as for Send; shared, it gives shared access to the value.
unsafe impl<T: Sync> Sync for Constructed<T> {}

impl<T> Drop for Constructed<T> {
    #[inline(always)]
    fn drop(&mut self) {
        let (object, cache) = (self.object.cast(), self.cache);
        // SAFETY: it is from there, and nobody uses it any more.
        unsafe { cache.handle().free_constructed_or(object, || cache.free_gated(object)) };
    }
}

impl<T> Deref for Constructed<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the object holds a value, and this is the only way to it.
        unsafe { self.object.as_ref() }
    }
}

impl<T> DerefMut for Constructed<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as for `deref`.
        unsafe { self.object.as_mut() }
    }
}

impl<T: fmt::Debug> fmt::Debug for Constructed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

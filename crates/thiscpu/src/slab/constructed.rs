//! A cache of values that stay constructed while they are free.

use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::cache::{LazyRawCache, owning_pointer};
use super::class::Lifecycle;
use super::raw::{CacheInUse, RawCache, report_leak};
use super::stats::CacheStats;

/// Values of one type that stay constructed while they are free: Bonwick's object caching.
///
/// Costly parts of a value, such as a buffer, a lock or a table, are made once and found by each
/// later user. The cache's constructor makes a value when its memory is first allocated. The value
/// is dropped when its memory is freed: by [`close`](Self::close), by [`shrink`](Self::shrink), or
/// when all objects of its slab are free and the cache has enough free objects. A slab has 64 KiB,
/// or more for large objects.
///
/// **A value is as its last user left it.** Users leave it in the state that the next one expects:
/// empty, unlocked. The cache does not reset a value, and does not check that users did.
///
/// ```
/// use std::cell::Cell;
///
/// struct Connection {
///     buffer: Vec<u8>,
///     requests: Cell<u32>,
/// }
///
/// static CONNECTIONS: thiscpu::ConstructedCache<Connection> =
///     thiscpu::ConstructedCache::new(|| Connection {
///         buffer: Vec::with_capacity(4096),
///         requests: Cell::new(0),
///     });
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
/// | [`alloc`](Self::alloc), drop of a [`Constructed`], in the lane | one section | nothing |
/// | the first `alloc` of an object | the constructor | what the constructor waits for |
/// | a trade, once in 4 to 1,020 calls | as for a [`RawCache`] | threads that trade now |
/// | a trade when freeing, besides | drops the values of unneeded slabs | those drops |
///
/// A call that frees drops the values of two slabs at most: of three if a slab has two or three
/// objects, of five if it has one.
///
/// # Constructors and drops
///
/// They run on any thread that uses the cache, without any of its locks. So they may use the cache
/// themselves, and may panic. If a constructor panics, its object is free again; a value whose drop
/// panics counts as dropped. Each object has a word of the cache behind it.
///
/// A value must not own an object of its own cache. Such an object keeps a slab alive, which may be
/// the slab of the value itself.
///
/// # Where it can be used
///
/// As a [`RawCache`]; **do not use it in signal handlers**. A child of `fork` has its own copies of
/// all values. It does not drop those of a slab that was being freed, or those that another thread
/// of the parent held.
///
/// If the cache is dropped before its objects, they stay valid. Other values in their slabs may
/// never be dropped (a debug build says so). [`close`](Self::close) returns an error instead.
pub struct ConstructedCache<T> {
    raw: LazyRawCache,
    make: fn() -> T,
    // Invariant in `T`. Only the implementations below make the cache `Send` and `Sync`.
    holds: PhantomData<*mut T>,
}

// SAFETY: any thread that uses the cache may get or drop a value, so `T` must be `Send`. All else
// in it may be used by any thread.
unsafe impl<T: Send> Send for ConstructedCache<T> {}
// SAFETY: a shared cache hands each value to one thread at a time, so `T` must be `Send` but need
// not be `Sync`. All else in it may be shared.
unsafe impl<T: Send> Sync for ConstructedCache<T> {}

/// Constructs a value at `at`. Returns true; it fails by a panic only.
///
/// # Safety
///
/// The caller guarantees that `make` is the exposed address of a `fn() -> T`, and that `at` is
/// unused memory for a `T`.
unsafe fn construct<T>(make: usize, at: NonNull<u8>) -> bool {
    let make = core::ptr::with_exposed_provenance::<()>(make);
    // SAFETY: the caller guarantees that `make` is the address of a `fn() -> T`; function pointers
    // and addresses have the same representation on these machines. The caller guarantees that `at`
    // is unused memory for a `T`.
    unsafe {
        let make: fn() -> T = core::mem::transmute(make);
        at.cast::<T>().write(make());
    }
    true
}

/// Drops the value at `at`.
///
/// # Safety
///
/// The caller guarantees that `at` holds a `T`, which is not used after this.
unsafe fn destroy<T>(_make: usize, at: NonNull<u8>) {
    // SAFETY: the caller guarantees that `at` holds a `T`, which is not used after this.
    unsafe { at.cast::<T>().drop_in_place() };
}

impl<T> ConstructedCache<T> {
    /// Creates an empty cache, whose values `make` constructs.
    ///
    /// # Panics
    ///
    /// If `T`, with eight bytes more, is larger than [`RawCache::SIZE_MAX`], or if it is aligned to
    /// more than [`RawCache::ALIGN_MAX`]; this is a compile error.
    #[must_use]
    pub const fn new(make: fn() -> T) -> ConstructedCache<T> {
        const {
            let layout = Layout::new::<T>();
            let size = layout.size().next_multiple_of(8) + 8;
            match Layout::from_size_align(size, layout.align()) {
                Ok(layout) => core::mem::forget(RawCache::new(layout)),
                Err(_) => panic!("cache object too large: at most 1 MiB"),
            }
        };
        ConstructedCache { raw: LazyRawCache::new(), make, holds: PhantomData }
    }

    fn make_raw(make: fn() -> T) -> RawCache {
        let layout = Layout::new::<T>();
        // SAFETY: the class has the size and alignment of a `T`, and `make` is a `fn() -> T`. The
        // class calls `destroy` once for each object that `construct` made.
        let lifecycle = unsafe {
            Lifecycle::new((make as *const ()).expose_provenance(), construct::<T>, destroy::<T>)
        };
        RawCache::constructed(layout, lifecycle)
    }

    #[inline(always)]
    pub(super) fn raw(&self) -> Option<&'static RawCache> {
        self.raw.get_or_init(|| Self::make_raw(self.make))
    }

    /// Allocates an object with its value, which is new or as its last user left it.
    ///
    /// # Panics
    ///
    /// If the constructor does; the object is freed then. If `THISCPU_TIER` has a wrong value. If
    /// there is no memory, calls [`handle_alloc_error`](std::alloc::handle_alloc_error), as Rust's
    /// allocations do; [`prefill`](Self::prefill) provides objects for code in which that must not
    /// happen.
    #[inline(always)]
    pub fn alloc(&self) -> Constructed<T> {
        let object =
            self.raw().and_then(|cache| Some(Constructed::new(cache.alloc_constructed()?, cache)));
        match object {
            Some(object) => object,
            None => std::alloc::handle_alloc_error(Layout::new::<T>()),
        }
    }

    /// Returns all free memory to the system, and reports how many bytes that was.
    ///
    /// See [`RawCache::shrink`]. First drops the values of all slabs without an object in use. If
    /// another thread is dropping values, it drops these too, and this call does not wait for it.
    ///
    /// # Panics
    ///
    /// If the drop of a value does; a later call continues after it.
    pub fn shrink(&self) -> usize {
        self.raw.if_used().map_or(0, RawCache::shrink)
    }

    /// Returns statistics of the cache; see [`RawCache::stats`].
    ///
    /// The bytes of an object include the word behind it.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        self.raw.if_used().map_or_else(CacheStats::default, RawCache::stats)
    }

    /// Closes the cache: drops all values, and leaves all of its memory to others.
    ///
    /// # Errors
    ///
    /// [`CacheInUse`] if objects are still allocated: it holds their number, and returns the cache
    /// unchanged. Objects that another thread is freeing, or whose values it is dropping, count as
    /// allocated.
    ///
    /// # Panics
    ///
    /// If the drop of a value does; the cache and the other values are dropped then.
    pub fn close(self) -> Result<(), CacheInUse<ConstructedCache<T>>> {
        let released = self.release();
        CacheInUse::unless_released(self, released)
    }

    fn release(&self) -> Result<(), usize> {
        // Nothing uses a value whose drop has panicked, and the cache is as consistent as after a
        // drop without a panic.
        despite_panics(|| self.raw.release())
    }
}

/// Calls `step` until it returns without a panic, then resumes the first panic.
///
/// If the thread was unwinding before, no panic is resumed: a second one would end the process.
pub(super) fn despite_panics<R>(mut step: impl FnMut() -> R) -> R {
    let unwinding = std::thread::panicking();
    let mut first = None;
    let result = loop {
        match catch_unwind(AssertUnwindSafe(&mut step)) {
            Ok(result) => break result,
            Err(another) => first = first.or(Some(another)),
        }
    };
    match first {
        Some(panic) if !unwinding => resume_unwind(panic),
        _ => result,
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

/// A value in an object of a [`ConstructedCache`].
///
/// Dropping it frees the object, with its value as it is then, on any thread. This may trade a
/// sheaf, which takes two locks and usually less than 1 µs, and drop the values of unneeded slabs.
/// One that is forgotten ([`core::mem::forget`]) stays allocated. Do not drop one in a signal
/// handler.
///
/// The value stays in the cache, so it cannot borrow anything that the cache outlives:
///
/// ```compile_fail,E0597
/// # use thiscpu::{Constructed, ConstructedCache};
/// static NAMES: ConstructedCache<&str> = ConstructedCache::new(|| "");
///
/// let name = String::from("of this block");
/// let mut value: Constructed<&str> = NAMES.alloc();
/// *value = &name;
/// ```
pub struct Constructed<T> {
    object: NonNull<T>,
    cache: &'static RawCache,
    owns: PhantomData<T>,
    /// The value outlives this, so lifetimes in its type must not be shortened.
    holds: PhantomData<fn(T) -> T>,
}

owning_pointer!(Constructed);

impl<T> Constructed<T> {
    /// Takes ownership of an allocated object of a cache; the object holds a `T`.
    #[inline(always)]
    pub(super) fn new(object: NonNull<u8>, cache: &'static RawCache) -> Constructed<T> {
        Constructed { object: object.cast(), cache, owns: PhantomData, holds: PhantomData }
    }
}

impl<T> Drop for Constructed<T> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the object is from this cache, and this value, which goes, was the only way to
        // it.
        unsafe { self.cache.free_constructed(self.object.cast()) };
    }
}

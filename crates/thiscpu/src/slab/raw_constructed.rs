//! A cache of objects of one layout that stay constructed while they are free.

use core::alloc::Layout;
use core::ptr::NonNull;

use super::arena;
use super::class::{Class, Group, Lifecycle};
#[cfg(not(thiscpu_model))]
use super::prefill::RawPrefilled;
use super::raw::RawCache;
#[cfg(not(thiscpu_model))]
use super::stats::CacheStats;

impl RawCache {
    /// Creates a cache of constructed objects, which only the functions below may use.
    pub(super) const fn constructed(layout: Layout, lifecycle: Lifecycle) -> RawCache {
        let class = Class::constructed(layout.size(), layout.align(), arena::ANY_CACHE, lifecycle);
        RawCache { group: Group::new(1), class }
    }

    /// Allocates an object of a cache of constructed objects.
    #[inline(always)]
    pub(super) fn alloc_constructed(&self) -> Option<NonNull<u8>> {
        self.handle().alloc_constructed_or(|| self.alloc_gated())
    }

    /// Frees an object of a cache of constructed objects.
    ///
    /// # Safety
    ///
    /// The caller guarantees that `object` is of this cache and no longer used.
    #[inline(always)]
    pub(super) unsafe fn free_constructed(&self, object: NonNull<u8>) {
        // SAFETY: the caller guarantees that `object` is of this cache and no longer used.
        unsafe { self.handle().free_constructed_or(object, || self.free_gated(object)) };
    }
}

/// A [`ConstructedCache`](crate::ConstructedCache) for other languages, without a type.
///
/// Its address may change until its first use only.
#[cfg(not(thiscpu_model))]
#[derive(Debug)]
pub struct RawConstructedCache(RawCache);

#[cfg(not(thiscpu_model))]
impl RawConstructedCache {
    /// Returns whether a cache supports objects of this layout.
    #[must_use]
    pub const fn supports(layout: Layout) -> bool {
        layout.size() <= RawCache::SIZE_MAX - 8 && layout.align() <= RawCache::ALIGN_MAX
    }

    /// Creates an empty cache of objects of that layout.
    ///
    /// # Panics
    ///
    /// If the layout is not [supported](Self::supports).
    #[must_use]
    pub const fn new(layout: Layout, lifecycle: Lifecycle) -> RawConstructedCache {
        RawConstructedCache(RawCache::constructed(layout, lifecycle))
    }

    /// Allocates an object; `None` without memory, or if the constructor made none.
    pub fn alloc(&self) -> Option<NonNull<u8>> {
        self.0.alloc_constructed()
    }

    /// Frees an object, which stays constructed, on any thread.
    ///
    /// # Safety
    ///
    /// The caller guarantees that `object` is from this cache and no longer used.
    pub unsafe fn free(&self, object: NonNull<u8>) {
        // SAFETY: the caller guarantees that `object` is of this cache and no longer used.
        unsafe { self.0.free_constructed(object) };
    }

    /// Allocates `n` objects in advance, each by `alloc`, which calls [`alloc`](Self::alloc).
    ///
    /// # Errors
    ///
    /// The first error of `alloc`; then none of the objects is kept.
    pub fn prefill<E>(
        &self,
        n: usize,
        alloc: impl FnMut() -> Result<NonNull<u8>, E>,
    ) -> Result<RawPrefilled<'_>, E> {
        RawPrefilled::filled(&self.0, n, alloc)
    }

    /// Returns all free memory to the system; see [`RawCache::shrink`].
    pub fn shrink(&self) -> usize {
        self.0.shrink()
    }

    /// Returns statistics of the cache.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        self.0.stats()
    }

    /// Frees all memory; if objects are still allocated, returns how many instead.
    ///
    /// # Errors
    ///
    /// The number of objects that are still allocated. The cache is unchanged then.
    ///
    /// # Safety
    ///
    /// The caller guarantees that no other thread uses the cache during this call, and that nothing
    /// uses it after this call has succeeded.
    pub unsafe fn release(&self) -> Result<(), usize> {
        self.0.release()
    }
}

//! What the allocator that is built on this library needs of it: not part of the API, and free to change.

pub use crate::slab::fault::Fault;
pub use crate::slab::large;
pub use crate::slab::purge::purge;
pub use crate::slab::space::{NOTHING, memory, tag_of, tag_of_block, watch};
pub use crate::sys::pin::stays;

use crate::RawCache;
use core::alloc::Layout;
use core::ptr::NonNull;

/// A cache whose addresses have a number, from 1 to 253: [`tag_of`] says which.
pub const fn cache(layout: Layout, tag: u8) -> RawCache {
    assert!(tag > NOTHING && tag < crate::slab::space::ANY_CACHE);
    RawCache::with_tag(layout, tag)
}

/// As `alloc`, with a way of the caller's to [`alloc_slowly`], which must come to that.
#[inline(always)]
pub fn alloc_or(
    cache: &RawCache,
    slowly: impl FnOnce(&RawCache) -> Option<NonNull<u8>>,
) -> Option<NonNull<u8>> {
    cache.alloc_or(slowly)
}

/// What `alloc` does when the lane has nothing.
pub fn alloc_slowly(cache: &RawCache) -> Option<NonNull<u8>> {
    cache.alloc_slowly()
}

/// As `free`, with a way of the caller's to [`free_slowly`], which must come to that.
///
/// # Safety
///
/// As for `free`.
#[inline(always)]
pub unsafe fn free_or(
    cache: &RawCache,
    object: NonNull<u8>,
    slowly: impl FnOnce(&RawCache, usize),
) {
    // SAFETY: the caller's promise.
    unsafe { cache.free_or(object, slowly) };
}

/// What `free` does when the lane has no room. `entry` is what [`free_or`] called with.
pub fn free_slowly(cache: &RawCache, entry: usize) {
    cache.free_slowly(entry);
}

/// Whether an object of the cache begins at an address.
pub fn is_object(cache: &RawCache, address: usize) -> bool {
    cache.is_object(address)
}

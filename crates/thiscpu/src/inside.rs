//! What the allocator that is built on this library needs of it: not part of the API, and free to change.

pub use crate::slab::fault::Fault;
pub use crate::slab::large;
pub use crate::slab::purge::purge;
pub use crate::slab::space::{LARGE, NOTHING, memory, tag_of};
pub use crate::sys::pin::stays;

use crate::RawCache;
use core::alloc::Layout;
use core::ptr::NonNull;

/// A cache whose addresses have a number, from 1 to 253: [`tag_of`] says which.
pub const fn cache(layout: Layout, tag: u8) -> RawCache {
    assert!(tag > NOTHING && tag < crate::slab::space::ANY_CACHE);
    RawCache::with_tag(layout, tag)
}

/// As `alloc`, and says whether the lane had it.
pub fn alloc_and_tell(cache: &RawCache) -> (Option<NonNull<u8>>, bool) {
    cache.alloc_and_tell()
}

/// As `free`, and says whether the lane took it.
///
/// # Safety
///
/// As for `free`.
pub unsafe fn free_and_tell(cache: &RawCache, object: NonNull<u8>) -> bool {
    // SAFETY: the caller's promise.
    unsafe { cache.free_and_tell(object) }
}

/// Whether an object of the cache begins at an address.
pub fn is_object(cache: &RawCache, address: usize) -> bool {
    cache.is_object(address)
}

//! What a cache has, and has done.

use super::class::Class;
use super::raw::RawCache;

/// What a cache has right now, about, and what it has done: see [`RawCache::stats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// The bytes of an object.
    pub object_bytes: usize,
    /// Slabs, which hold the objects.
    pub slabs: usize,
    /// The bytes of those.
    pub slab_bytes: usize,
    /// Objects that are not free in a slab: those in use, and those that lanes and shared stores keep.
    pub objects_outside_slabs: usize,
    /// Objects that the shared stores keep.
    pub objects_in_barns: usize,
    /// How many objects a sheaf has that is made now.
    pub sheaf_capacity: usize,
    /// Sheaves that lanes have traded so far.
    pub trades: u64,
}

impl Class {
    /// What it has and has done.
    pub fn stats(&self) -> CacheStats {
        let object_bytes = self.shape.size;
        let Some(backend) = self.backend_if_used() else {
            return CacheStats { object_bytes, ..CacheStats::default() };
        };
        let slabs = backend.slabs();
        CacheStats {
            object_bytes,
            slabs,
            slab_bytes: slabs * self.shape.chunks * super::arena::CHUNK_BYTES,
            objects_outside_slabs: backend.objects_outside_slabs(),
            objects_in_barns: backend.objects_in_barns(),
            sheaf_capacity: backend.capacity(),
            trades: backend.trades(),
        }
    }
}

impl RawCache {
    /// What the cache has and has done. Looks at all of its slabs, and takes no lock: numbers that change meanwhile do not
    /// belong to one instant.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        self.class.stats()
    }
}

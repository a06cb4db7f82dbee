//! Statistics of a cache.

use super::class::Class;
use super::raw::RawCache;

/// What a cache holds and has done; see [`RawCache::stats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Bytes of an object.
    pub object_bytes: usize,
    /// Number of slabs.
    pub slabs: usize,
    /// Bytes of all slabs.
    pub slab_bytes: usize,
    /// Number of objects that are not free in a slab: allocated, or kept by lanes and barns.
    pub objects_outside_slabs: usize,
    /// Number of objects that barns keep.
    pub objects_in_barns: usize,
    /// Number of objects that a new sheaf holds.
    pub sheaf_capacity: usize,
    /// Number of sheaves that lanes have traded so far.
    pub trades: u64,
}

impl Class {
    /// Returns statistics of the class.
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
    /// Returns statistics of the cache.
    ///
    /// Visits all of its slabs and takes no lock. Numbers that change meanwhile do not belong to
    /// one instant.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        self.class.stats()
    }
}

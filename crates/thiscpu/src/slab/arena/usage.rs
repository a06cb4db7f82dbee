//! Memory use of the heap: address space, pages, and bytes returned to the system.

use super::layout::layout;
use super::purge::PURGED_BYTES;
use super::slab::{OBJECT_BITS_BYTES, Slab};
use super::{ARENA, CHUNK_BYTES};
use crate::slab::lane::sheaf;
use crate::sys::atomic::Ordering::{Acquire, Relaxed};

/// The memory of the heap and of its metadata, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Address space of slabs, large blocks and metadata that the process may access.
    pub mapped: usize,
    /// Metadata that has pages: descriptors of chunks, bits of objects, and sheaves.
    pub metadata: usize,
    /// Pages of free chunks, which a purge would return to the system.
    pub purgeable: usize,
    /// Pages returned to the system so far.
    pub purged: u64,
}

/// Returns the memory of the heap. Loads a few words; the numbers are estimates.
pub fn usage() -> Usage {
    // Relaxed, here and below: estimates, which no other memory depends on.
    let purged = PURGED_BYTES.load(Relaxed);
    // Acquire: pairs with the Release in `publish_len`, so that `limit` is set.
    if ARENA.len.load(Acquire) == 0 {
        return Usage { purged, ..Usage::default() };
    }
    let layout = layout(ARENA.limit.load(Relaxed));
    let elsewhere = ARENA.foreign.load(Relaxed) + ARENA.holes.load(Relaxed);
    let chunks = ARENA.committed.load(Relaxed).saturating_sub(elsewhere);
    let committed = ARENA.slabs_committed.load(Relaxed).saturating_sub(layout.slabs)
        + ARENA.object_bits_committed.load(Relaxed).saturating_sub(layout.object_bits);
    let sheaves = sheaf::mapped_bytes();
    let per_chunk = size_of::<Slab>() + OBJECT_BITS_BYTES;
    let described = ARENA.used.load(Relaxed).min(ARENA.high()) * per_chunk;
    Usage {
        mapped: chunks * CHUNK_BYTES + committed + sheaves,
        metadata: described.min(committed) + sheaves,
        purgeable: (ARENA.dirty.load(Relaxed) + ARENA.unused_advised()) * CHUNK_BYTES,
        purged,
    }
}

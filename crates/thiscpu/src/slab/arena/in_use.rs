//! Which large objects are in use: a flag for each half of a chunk.
//!
//! A large object is longer than half a chunk, so no two of them begin in one half. Its owner sets
//! and clears the flag, by plain stores, because it is the only thread that has the object then. So
//! a second free is found at once, whatever was written over the free mark in between.

use super::slab::Slab;
use super::{ARENA, CHUNK_BYTES};
use crate::sys::atomic::{AtomicBool, Ordering::Relaxed};

/// Bytes of half a chunk. Each object of a large class is longer.
pub(in crate::slab) const HALF_BYTES: usize = CHUNK_BYTES / 2;

/// The flags of a chunk's two halves.
pub(super) type InUse = [AtomicBool; 2];

/// Returns the flag of a large object, which begins in a chunk that has a tag.
#[inline(always)]
fn flag(object: usize) -> &'static AtomicBool {
    &Slab::of_tagged_chunk_at(object).in_use[object / HALF_BYTES % 2]
}

// Relaxed, in all of these: an object passes to its next owner by a lane or a lock, which orders
// the stores of its owners.

/// Notes that a large object is in use from now on. Its owner calls this.
#[inline(always)]
pub(in crate::slab) fn begin(object: usize) {
    flag(object).store(true, Relaxed);
}

/// Notes that a large object is no longer in use; returns false if it was not. Its owner calls this.
#[inline(always)]
pub(in crate::slab) fn end(object: usize) -> bool {
    let flag = flag(object);
    let was_in_use = flag.load(Relaxed);
    flag.store(false, Relaxed);
    was_in_use
}

/// Returns whether a large object is in use.
#[inline(always)]
pub(in crate::slab) fn is_in_use(object: usize) -> bool {
    flag(object).load(Relaxed)
}

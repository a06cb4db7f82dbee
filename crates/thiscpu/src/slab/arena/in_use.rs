//! Which large objects are in use, and where they begin: a word for each half of a chunk.
//!
//! A large object is longer than half a chunk, so no two of them begin in one half. The word of the
//! half holds the offset of the object in use that begins there. So one load tells a call that
//! frees whether an object in use begins at the very address: an address inside an object, and a
//! second free, are found at once, whatever was written over the free mark in between.
//!
//! Only the object's owner changes the word, because it is the only thread that has the object
//! then. So plain stores are enough.

use super::slab::Slab;
use super::{ARENA, CHUNK_BYTES};
use crate::sys::atomic::{AtomicU16, Ordering::Relaxed};

/// Bytes of half a chunk. Each object of a large class is longer.
pub(in crate::slab) const HALF_BYTES: usize = CHUNK_BYTES / 2;

/// The words of a chunk's two halves: one more than an offset in the half, or 0.
pub(super) type InUse = [AtomicU16; 2];

/// Returns the word of an address's half, and what it holds if an object begins there.
///
/// The address is in a chunk that has a tag.
#[inline(always)]
fn word_and_value(address: usize) -> (&'static AtomicU16, u16) {
    let chunk = address.wrapping_sub(ARENA.base.load(Relaxed)) / CHUNK_BYTES;
    // SAFETY: callers pass addresses in chunks that have a tag.
    let slab: &Slab = unsafe { ARENA.slab_unchecked(chunk) };
    (&slab.in_use[address / HALF_BYTES % 2], (address % HALF_BYTES) as u16 + 1)
}

// Relaxed, in all of these: an object passes to its next owner by a lane or a lock, which orders
// the stores of its owners.

/// Notes that a large object is in use from now on. Its owner calls this.
#[inline(always)]
pub(in crate::slab) fn begin(object: usize) {
    let (word, value) = word_and_value(object);
    word.store(value, Relaxed);
}

/// Notes that a large object is no longer in use; its owner calls this.
///
/// Returns false if no object in use begins at that address.
#[inline(always)]
pub(in crate::slab) fn end(object: usize) -> bool {
    let (word, value) = word_and_value(object);
    let was_in_use = word.load(Relaxed) == value;
    if was_in_use {
        word.store(0, Relaxed);
    }
    was_in_use
}

/// Returns whether a large object in use begins at an address.
#[inline(always)]
pub(in crate::slab) fn is_in_use(address: usize) -> bool {
    let (word, value) = word_and_value(address);
    word.load(Relaxed) == value
}

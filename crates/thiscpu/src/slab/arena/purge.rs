//! Purging: returning the pages of free chunks to the system.
//!
//! Free chunks keep their pages for a while, because dropping a page and faulting it in again is
//! slow. All of them are purged if one of these holds:
//!
//! - for 10 ms, they were more than 1/16 of the used chunks, 64 MiB at most, plus 1 MiB;
//! - they are more than 1/4 of the used chunks, 128 MiB at most, plus 16 MiB.
//!
//! There is no thread for this: calls that free do it. A call that allocates purges at most 1 MiB.
//!
//! Pages are dropped without the lock, up to 16 MiB at a time, while the chunks are marked as used.
//! A thread that finds no other memory waits for them. A child forked meanwhile frees them again.
//! Locked pages cannot be dropped; after such a failure the purge is not repeated for a second.

use super::{ARENA, Arena, CHUNK_BYTES};
use crate::sys::Host;
use crate::sys::atomic::{AtomicU64, Ordering::Relaxed};
use crate::sys::errno;
use crate::sys::lock::{Guard, Lock};
use crate::sys::machine::Machine as _;

const MIB_CHUNKS: usize = (1024 * 1024) / CHUNK_BYTES;
const EXCESS_NS: u64 = 10_000_000;
const RETRY_NS: u64 = 1_000_000_000;
const PURGE_CHUNKS_MAX: usize = 16 * MIB_CHUNKS;
const ALLOC_PURGE_CHUNKS_MAX: usize = MIB_CHUNKS;

#[derive(Debug)]
pub(super) struct Purging {
    /// Held by the thread that purges.
    lock: Lock,
    /// The chunks being purged: their number, and the first one in the upper half; or 0.
    in_flight: AtomicU64,
    /// When free chunks began to have too many pages; 0 while they have not.
    excess_since: AtomicU64,
    /// When pages could not be dropped last; 0 if the last purge dropped all.
    failed_at: AtomicU64,
}

impl Purging {
    pub(super) const fn new() -> Purging {
        Purging {
            lock: Lock::new(),
            in_flight: AtomicU64::new(0),
            excess_since: AtomicU64::new(0),
            failed_at: AtomicU64::new(0),
        }
    }

    /// Waits for a purge and rules others out. The caller must not hold the arena's lock.
    pub(super) fn lock(&self) -> Guard<'_> {
        self.lock.lock()
    }

    /// Returns whether chunks are being purged; the caller holds the arena's lock.
    pub(super) fn is_in_flight(&self) -> bool {
        self.in_flight.load(Relaxed) != 0
    }
}

impl Arena {
    /// Returns whether free chunks have had too many pages for some time.
    fn has_excess(&self) -> bool {
        // Relaxed, in this function: estimates. A thread that misses another's store checks again
        // soon.
        let (dirty, used) = (self.dirty.load(Relaxed), self.used.load(Relaxed));
        let since = self.purging.excess_since.load(Relaxed);
        if dirty <= (used / 16).min(64 * MIB_CHUNKS) + MIB_CHUNKS {
            if since != 0 {
                self.purging.excess_since.store(0, Relaxed);
            }
            return false;
        }
        let now = Host::coarse_time().max(1);
        if since == 0 {
            self.purging.excess_since.store(now, Relaxed);
        }
        let failed_at = self.purging.failed_at.load(Relaxed);
        if failed_at != 0 && now.saturating_sub(failed_at) < RETRY_NS {
            return false;
        }
        let is_far_excess = dirty > (used / 4).min(128 * MIB_CHUNKS) + 16 * MIB_CHUNKS;
        is_far_excess || (since != 0 && now.saturating_sub(since) > EXCESS_NS)
    }

    /// Purges up to `most` free chunks; returns how many. The caller holds the purge lock.
    pub(super) fn purge(&self, most: usize) -> usize {
        let (mut at, mut left, mut dropped, mut has_failed) = (0, most, 0, false);
        while let Some((first, count)) = self.take_dirty(at, left.min(PURGE_CHUNKS_MAX)) {
            self.unadvise(first, count);
            // SAFETY: `take_dirty` has marked these free chunks as used, so that no other thread
            // uses them.
            let is_done = unsafe { Host::discard(self.address(first), count * CHUNK_BYTES) };
            self.return_purged(first, count, !is_done);
            has_failed |= !is_done;
            dropped += if is_done { count } else { 0 };
            (at, left) = (first + count, left - count);
        }
        let failed_at = if has_failed { Host::coarse_time().max(1) } else { 0 };
        self.purging.failed_at.store(failed_at, Relaxed);
        if left > 0 {
            self.purging.excess_since.store(0, Relaxed);
        }
        dropped
    }

    /// Takes the next free chunks that have pages, from `at` on: the first one and how many.
    fn take_dirty(&self, at: usize, most: usize) -> Option<(usize, usize)> {
        let _guard = self.lock();
        let high = self.high();
        if at >= high {
            // Also if the arena was never used, and has no bits yet.
            return None;
        }
        let (used, dirty) = (self.used_bits(), self.dirty_bits());
        let first = dirty.find_without(used, true, at, high);
        let count = dirty.find_without(used, false, first, high.min(first + most)) - first;
        if count == 0 {
            return None;
        }
        // Stored first, so that a child forked from here on frees them again.
        self.purging.in_flight.store((first as u64) << 32 | count as u64, Relaxed);
        self.raise_after(first + count);
        used.put(first, count, true);
        self.dirty.store(self.dirty.load(Relaxed).saturating_sub(count), Relaxed);
        Some((first, count))
    }

    fn return_purged(&self, first: usize, count: usize, is_dirty: bool) {
        let _guard = self.lock();
        self.mark_free(first, count, is_dirty);
        self.purging.in_flight.store(0, Relaxed);
    }

    /// Frees the chunks that the parent was purging; returns whether there were any.
    ///
    /// Then the counts are to be recounted. The caller holds the arena's lock.
    pub(super) fn recover_in_flight(&self) -> bool {
        let piece = self.purging.in_flight.load(Relaxed);
        if piece != 0 {
            self.mark_free((piece >> 32) as usize, piece as u32 as usize, true);
            self.purging.in_flight.store(0, Relaxed);
        }
        piece != 0
    }
}

/// Purges if too many free chunks have pages and no thread purges. The caller holds no lock.
#[inline]
pub(crate) fn purge_if_excess() {
    purge_at_most_if_excess(usize::MAX);
}

/// Purges at most 1 MiB, for a call that allocates; the next such call continues.
pub fn purge_some_if_excess() {
    purge_at_most_if_excess(ALLOC_PURGE_CHUNKS_MAX);
}

#[inline]
fn purge_at_most_if_excess(most: usize) {
    if ARENA.has_excess()
        && let Some(_guard) = ARENA.purging.lock.try_lock()
    {
        ARENA.purge(most);
    }
}

/// Purges all free chunks; returns how many bytes that was.
pub fn purge() -> usize {
    if ARENA.is_unused() {
        return 0;
    }
    let _errno = errno::save();
    let _guard = ARENA.purging.lock();
    {
        let _guard = ARENA.lock();
        ARENA.count_dirty(0, ARENA.high());
    }
    ARENA.purge(usize::MAX) * CHUNK_BYTES
}

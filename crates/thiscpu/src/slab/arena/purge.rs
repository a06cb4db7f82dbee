//! Which free chunks keep their pages.
//!
//! Free chunks keep their pages for a while, because to drop a page and get another costs a quarter of a
//! microsecond. If they have been more than a mebibyte and a sixteenth of what is in use, and that is 65 MiB at most, for ten
//! milliseconds, or are more than 16 MiB and a quarter of it, 144 MiB at most, the pages of all of them are dropped. There is no
//! thread for this: whoever frees does it. Whoever allocates drops a mebibyte at most.
//!
//! Pages are dropped a piece at a time and without the lock: the chunks of the piece are used meanwhile. Who finds no other memory then
//! waits for them. A child that is forked then takes them back. Pages that are locked stay; it is not tried again for a second.

use super::{ARENA, Arena, CHUNK_BYTES};
use crate::sys::Host;
use crate::sys::atomic::{AtomicU64, Ordering::Relaxed};
use crate::sys::errno;
use crate::sys::lock::{Guard, Lock};
use crate::sys::machine::Machine as _;

const MIB_CHUNKS: usize = (1024 * 1024) / CHUNK_BYTES;
const EXCESS_NS: u64 = 10_000_000;
const RETRY_NS: u64 = 1_000_000_000;
/// The chunks whose pages are dropped at once.
const PURGE_CHUNKS_MAX: usize = 16 * MIB_CHUNKS;
/// The most chunks whose pages a call drops that allocates.
const ALLOC_PURGE_CHUNKS_MAX: usize = MIB_CHUNKS;

#[derive(Debug)]
pub(super) struct Purging {
    /// Whose it is to drop pages.
    lock: Lock,
    /// The chunks that are used for that: their number, and in the upper half the first.
    in_flight: AtomicU64,
    /// Since when free chunks with pages are more than are wanted; 0 while they are not.
    excess_since: AtomicU64,
    /// When pages stayed.
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

    /// Waits for whoever drops pages; nobody else does until this is dropped. Who has the arena's lock must not ask for it.
    pub(super) fn lock(&self) -> Guard<'_> {
        self.lock.lock()
    }

    /// Whether chunks are used for that. Under the arena's lock.
    pub(super) fn is_in_flight(&self) -> bool {
        self.in_flight.load(Relaxed) != 0
    }
}

impl Arena {
    /// Whether free chunks have had too many pages for some time.
    fn has_excess(&self) -> bool {
        // Relaxed, all of it: estimates, and who finds another's moment looks again soon.
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
        let is_far_too_many = dirty > (used / 4).min(128 * MIB_CHUNKS) + 16 * MIB_CHUNKS;
        is_far_too_many || (since != 0 && now.saturating_sub(since) > EXCESS_NS)
    }

    /// Drops the pages of chunks that are free now: all, or `most` of them. How many that were. In turn.
    pub(super) fn purge(&self, most: usize) -> usize {
        let (mut at, mut left, mut dropped, mut is_refused) = (0, most, 0, false);
        while let Some((first, count)) = self.take_dirty(at, left.min(PURGE_CHUNKS_MAX)) {
            self.unadvise(first, count);
            // SAFETY: the chunks are this function's own, and were free.
            let is_done = unsafe { Host::discard(self.address(first), count * CHUNK_BYTES) };
            self.return_purged(first, count, !is_done);
            is_refused |= !is_done;
            dropped += if is_done { count } else { 0 };
            (at, left) = (first + count, left - count);
        }
        let failed_at = if is_refused { Host::coarse_time().max(1) } else { 0 };
        self.purging.failed_at.store(failed_at, Relaxed);
        if left > 0 {
            self.purging.excess_since.store(0, Relaxed);
        }
        dropped
    }

    /// Takes the next free chunks that have pages, `most` at most: the first, and how many.
    fn take_dirty(&self, at: usize, most: usize) -> Option<(usize, usize)> {
        let _guard = self.lock();
        let high = self.high();
        if at >= high {
            // Or nothing was ever used, and there are no bits yet.
            return None;
        }
        let (used, dirty) = (self.used_bits(), self.dirty_bits());
        let first = dirty.find_without(used, true, at, high);
        let count = dirty.find_without(used, false, first, high.min(first + most)) - first;
        if count == 0 {
            return None;
        }
        // First: a child that is forked from here on takes them back.
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

    /// The piece whose pages the parent was dropping, if it was: then counts are to be made anew. Under the lock.
    pub(super) fn recover_in_flight(&self) -> bool {
        let piece = self.purging.in_flight.load(Relaxed);
        if piece != 0 {
            self.mark_free((piece >> 32) as usize, piece as u32 as usize, true);
            self.purging.in_flight.store(0, Relaxed);
        }
        piece != 0
    }
}

/// Drops the pages of free chunks if they have had too many for some time, unless somebody else is just doing that.
/// For who holds no lock.
#[inline]
pub(crate) fn purge_if_excess() {
    purge_up_to_if_excess(usize::MAX);
}

/// The same for who allocates, and is not to wait for long: a mebibyte at most. The next goes on with it at once.
pub fn purge_some_if_excess() {
    purge_up_to_if_excess(ALLOC_PURGE_CHUNKS_MAX);
}

#[inline]
fn purge_up_to_if_excess(most: usize) {
    if ARENA.has_excess()
        && let Some(_guard) = ARENA.purging.lock.try_lock()
    {
        ARENA.purge(most);
    }
}

/// Gives the pages of all free chunks back to the system. How many bytes that were.
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

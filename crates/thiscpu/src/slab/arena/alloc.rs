//! Allocating and freeing chunks.

use super::Arena;
use crate::sys::atomic::Ordering::{Relaxed, Release};
use crate::sys::lock::Guard;

/// No memory was found, while a purge held free chunks.
struct PurgeInFlight;

impl Arena {
    /// Allocates `count` adjacent chunks at a multiple of `align`; returns the first of them.
    pub(crate) fn alloc(&self, count: usize, align: usize) -> Option<usize> {
        self.alloc_found(count, align, || self.find_any(count, align))
    }

    /// Allocates chunks for a caller whose allocations are to be adjacent.
    ///
    /// `next` is the chunk after its last allocation. If that is free and in the same extent, takes
    /// it, or else begins another extent, away from other callers'.
    pub(crate) fn alloc_in_extent(&self, next: usize, count: usize) -> Option<usize> {
        if self.fits_extent(next, count) && self.extend(next, count).is_some() {
            return Some(next);
        }
        self.alloc_found(count, 1, || self.find_extent(count))
    }

    /// Allocates the chunks that `find` finds under the lock.
    ///
    /// If they have holes and there is no memory for these, allocates mapped chunks at a multiple
    /// of `align`.
    pub(super) fn alloc_found(
        &self,
        count: usize,
        align: usize,
        find: impl Fn() -> Option<usize>,
    ) -> Option<usize> {
        match self.try_alloc(count, align, &find) {
            Err(PurgeInFlight) => {
                // The purge may hold the missing chunks. With its lock, no purge is running.
                let _guard = self.purging.lock();
                self.try_alloc(count, align, &find).unwrap_or(None)
            }
            Ok(found) => found,
        }
    }

    /// Allocates the chunks that `find` finds, without waiting for a purge.
    fn try_alloc(
        &self,
        count: usize,
        align: usize,
        find: impl Fn() -> Option<usize>,
    ) -> Result<Option<usize>, PurgeInFlight> {
        let _guard = self.lock();
        loop {
            let found = self.init().and_then(|()| find());
            let found = match found.map(|first| (first, self.map_holes(first, count))) {
                Some((first, Ok(()))) => Some(first),
                // Those holes are lost. There may be others.
                Some((_, Err(libc::EEXIST))) => continue,
                Some(_) => self.find_mapped(count, align),
                None => None,
            };
            match found {
                Some(first) => {
                    self.mark_used(first, count);
                    return Ok(Some(first));
                }
                _ if self.purging.is_in_flight() => return Err(PurgeInFlight),
                _ => {
                    self.note_refusal(count);
                    return Ok(None);
                }
            }
        }
    }

    /// Allocates the `count` chunks at `end`, behind a run, if they are free.
    pub(super) fn extend(&self, end: usize, count: usize) -> Option<()> {
        let _guard = self.lock();
        let (high, wanted) = (self.high.load(Relaxed), end.checked_add(count)?);
        let below = wanted.min(high);
        if self.used_bits().find(true, end.min(below), below) < below {
            return None;
        }
        if wanted > high {
            self.commit_to(wanted).ok()?;
            // Release: pairs with the Acquire in `slab`, so that a chunk below `high` is committed.
            self.high.store(wanted, Release);
        }
        self.map_holes(end, count).ok()?;
        self.mark_used(end, count);
        Some(())
    }

    /// Marks free, mapped chunks as used; the caller holds the lock.
    pub(super) fn mark_used(&self, first: usize, count: usize) {
        self.raise_after(first + count);
        // First: a child forked after this loses the chunks, and before it they are free.
        self.used_bits().put(first, count, true);
        let dirty = self.dirty_bits().count(first, count);
        self.dirty.store(self.dirty.load(Relaxed).saturating_sub(dirty), Relaxed);
        self.set_used(self.used.load(Relaxed) + count);
    }

    /// Stores the number of used chunks, which has grown; the caller holds the lock.
    pub(super) fn set_used(&self, used: usize) {
        self.used.store(used, Relaxed);
        self.used_peak.store(self.used_peak.load(Relaxed).max(used), Relaxed);
        self.purging.raise_peak(used);
    }

    /// Returns whether chunks that the caller has just allocated hold zeros only.
    pub(super) fn is_zero(&self, first: usize, count: usize) -> bool {
        self.dirty_bits().find(true, first, first + count) == first + count
    }

    /// Frees chunks whose tags are [`NO_TAG`](super::NO_TAG) again.
    ///
    /// The caller then calls [`purge_if_due`](super::purge::purge_if_due), without a lock.
    pub(super) fn free(&self, first: usize, count: usize) {
        self.locked().free(first, count);
    }

    /// Locks the arena, for a caller that checks tags before it frees.
    pub(super) fn locked(&self) -> LockedArena<'_> {
        LockedArena { arena: self, _guard: self.lock() }
    }

    /// Marks chunks as free, dirty or all zero; the caller holds the lock.
    pub(super) fn mark_free(&self, first: usize, count: usize, is_dirty: bool) {
        self.raise_for_free(first, count);
        self.dirty_bits().put(first, count, is_dirty);
        self.aged_bits().put(first, count, false);
        self.used_bits().put(first, count, false);
        if is_dirty {
            self.dirty.store(self.dirty.load(Relaxed) + count, Relaxed);
        }
    }
}

#[cfg(all(test, not(thiscpu_model)))]
impl Arena {
    /// Frees chunks that have no pages.
    pub(super) fn free_clean(&self, first: usize, count: usize) {
        let _guard = self.lock();
        self.mark_free(first, count, false);
    }
}

/// The arena, with its lock held.
pub(super) struct LockedArena<'a> {
    arena: &'a Arena,
    _guard: Guard<'a>,
}

impl LockedArena<'_> {
    pub(super) fn free(&self, first: usize, count: usize) {
        let arena = self.arena;
        // First: a child forked in between counts these chunks too.
        arena.count_dirty(first, count);
        arena.mark_free(first, count, true);
        arena.used.store(arena.used.load(Relaxed).saturating_sub(count), Relaxed);
    }
}

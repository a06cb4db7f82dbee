//! Huge pages for slabs, once there are many slabs of small objects.
//!
//! Such slabs soon touch all of their chunks, and one fault for 2 MiB takes the time of a few for 4
//! KiB.
//!
//! The first slab in the range of a huge page advises all of it, if nothing there has pages yet. It
//! does not if other slabs have left much advised memory unused. When a chunk of an advised range
//! is freed, the other free chunks there count as dirty, because they have pages. A thread that
//! purges chunks of the range unadvises it, since otherwise the kernel would soon fill it up again.
//! The next slab there may advise it once more.
//!
//! Pages belong to a node, and a huge page to the node of the first slab in it. So nothing is
//! advised on machines with several nodes. Each advised range may take two more of the process's
//! mappings, so only ranges near the beginning of the arena are.

use core::ops::Range;
use core::sync::atomic::AtomicIsize;

use super::slab::Shape;
use super::thp::{self, Thp};
use super::{Arena, CHUNK_BYTES};
use crate::sys::Host;
use crate::sys::atomic::{
    AtomicU64,
    Ordering::{Relaxed, Release},
};
use crate::sys::bits::Bits;
use crate::sys::machine::Machine as _;

/// Bytes of a huge page, on machines with pages of 4 KiB.
pub(super) const HUGE_PAGE_BYTES: usize = 2 * 1024 * 1024;
const HUGE_PAGE_CHUNKS: usize = HUGE_PAGE_BYTES / CHUNK_BYTES;
/// Number of huge pages, 16 GiB, from the beginning of the arena that may be advised.
const ADVISABLE_PAGES: usize = if cfg!(thiscpu_model) { 64 } else { 8192 };
/// Bytes up to which objects are small. Larger ones may have pages that are never touched.
const SMALL_OBJECT_BYTES_MAX: usize = 4096;
/// Number of chunks in slabs of small objects, 4 MiB, from which on slabs advise.
///
/// A smaller process has no page that it does not touch.
const SMALL_CHUNKS_MIN: isize = 2 * HUGE_PAGE_CHUNKS as isize;

#[derive(Debug)]
pub(super) struct SlabThp {
    /// Number of chunks in slabs of small objects; an estimate, and not modeled.
    small: AtomicIsize,
    /// The advised pages. Accessed under the arena's lock.
    advised: [AtomicU64; ADVISABLE_PAGES / 64],
}

impl SlabThp {
    pub(super) const fn new() -> SlabThp {
        SlabThp {
            small: AtomicIsize::new(0),
            advised: [const { AtomicU64::new(0) }; ADVISABLE_PAGES / 64],
        }
    }

    fn advised(&self) -> Bits<'_> {
        Bits(&self.advised)
    }
}

/// Returns the chunks of a slab if its objects are small, or 0.
fn small_chunks(shape: Shape) -> isize {
    if shape.size <= SMALL_OBJECT_BYTES_MAX { shape.chunks as isize } else { 0 }
}

impl Arena {
    /// Returns the advisable pages that a run of chunks overlaps, each with its first chunk.
    fn advisable_pages(
        &self,
        first: usize,
        count: usize,
    ) -> impl Iterator<Item = (usize, usize)> + use<> {
        // The first chunk at which a huge page begins.
        let from = self.align_up(0, HUGE_PAGE_CHUNKS).unwrap_or(usize::MAX);
        let begin = first.saturating_sub(from) / HUGE_PAGE_CHUNKS;
        let end =
            (first + count).saturating_sub(from).div_ceil(HUGE_PAGE_CHUNKS).min(ADVISABLE_PAGES);
        (begin..end).map(move |page| (page, from + page * HUGE_PAGE_CHUNKS))
    }

    /// Returns those of [`advisable_pages`](Arena::advisable_pages) that are advised.
    fn advised_pages(&self, first: usize, count: usize) -> impl Iterator<Item = (usize, usize)> {
        self.advisable_pages(first, count).filter(|&(page, _)| self.thp.advised().has(page))
    }

    /// Returns whether a chunk is in an advised page; an estimate without the lock.
    pub(super) fn is_advised(&self, chunk: usize) -> bool {
        self.advised_pages(chunk, 1).next().is_some()
    }

    /// Advises huge pages for a new slab, where it is the first in their range.
    pub(crate) fn advise_for_slab(&self, first: usize, shape: Shape) {
        let small = small_chunks(shape);
        // Relaxed, in this function: an estimate.
        let before = self.thp.small.fetch_add(small, Relaxed);
        if small == 0
            || before < SMALL_CHUNKS_MIN
            || thp::is_mode(Thp::Never)
            || Host::nodes() > 1
            || Host::page_bytes() != 4096
        {
            return;
        }
        let _guard = self.lock();
        for (page, begin) in self.advisable_pages(first, shape.chunks) {
            let advised = self.thp.advised();
            if !advised.has(page) && self.may_advise(begin, first..first + shape.chunks) {
                // First: a child forked in between counts pages that do not exist, but misses none.
                advised.put(page, 1, true);
                if !Host::prefer_huge_pages(self.address(begin), HUGE_PAGE_BYTES, true) {
                    advised.put(page, 1, false);
                }
            }
        }
    }

    pub(crate) fn count_slab_freed(&self, shape: Shape) {
        self.thp.small.fetch_sub(small_chunks(shape), Relaxed);
    }

    /// Returns whether the range of a huge page may be advised, and commits all of it.
    ///
    /// `own` are the chunks of the new slab. All others must be free, and none may have pages.
    /// Moreover, slabs must not have left much advised memory unused.
    fn may_advise(&self, begin: usize, own: Range<usize>) -> bool {
        let (high, end) = (self.high(), begin + HUGE_PAGE_CHUNKS);
        let (used, dirty) = (self.used_bits(), self.dirty_bits());
        // Chunks from `high` on were never used.
        let free = |from: usize, to: usize| {
            let to = to.min(high).max(from);
            used.find(true, from, to) == to
        };
        let near = end.min(high);
        let is_fresh = free(begin, own.start)
            && free(own.end, end)
            && dirty.find(true, begin, near) == near
            && self.unmapped_bits().find(true, begin, near) == near
            && self.unused_advised() <= self.used.load(Relaxed) / 16 + HUGE_PAGE_CHUNKS;
        if !is_fresh || self.commit_to(end).is_err() {
            return false;
        }
        if end > high {
            // The free chunks below the new `high` can now be found, and are counted once they have
            // pages.
            self.raise_for_free(high, end - high);
            // Release: pairs with the Acquire in `slab`, so that a chunk below `high` is committed.
            self.high.store(end, Release);
        }
        true
    }

    /// Returns how many chunks never used have pages; an estimate without the lock.
    pub(super) fn unused_advised(&self) -> usize {
        let high = self.high();
        if high == 0 {
            return 0;
        }
        let (used, dirty) = (self.used_bits(), self.dirty_bits());
        self.advised_pages(0, high)
            .map(|(_, begin)| used.count_neither(dirty, begin, HUGE_PAGE_CHUNKS))
            .sum()
    }

    /// Counts the free chunks of advised pages as dirty, before some chunks there are freed.
    ///
    /// Also called before their advice is withdrawn, and before all free chunks are purged. The
    /// caller holds the lock.
    pub(super) fn count_dirty(&self, first: usize, count: usize) {
        for (_, begin) in self.advised_pages(first, count) {
            let (used, dirty) = (self.used_bits(), self.dirty_bits());
            let clean = (begin..begin + HUGE_PAGE_CHUNKS)
                .filter(|&chunk| !used.has(chunk) && dirty.set(chunk));
            self.dirty.store(self.dirty.load(Relaxed) + clean.count(), Relaxed);
        }
    }

    /// Unadvises the huge pages of chunks that the caller has, to purge, unmap or move them.
    ///
    /// Returns whether there were any.
    pub(super) fn unadvise(&self, first: usize, count: usize) -> bool {
        if self.advised_pages(first, count).next().is_none() {
            return false;
        }
        let _guard = self.lock();
        // The other free chunks of the range may have pages, and no one would count these later.
        self.count_dirty(first, count);
        for (page, begin) in self.advised_pages(first, count) {
            // First: a child forked in between does it again. No slab advises meanwhile, because
            // the caller holds chunks of the range.
            Host::prefer_huge_pages(self.address(begin), HUGE_PAGE_BYTES, false);
            self.thp.advised().put(page, 1, false);
        }
        true
    }
}

#[cfg(all(test, not(thiscpu_model)))]
mod tests {
    use super::*;

    const fn slab(chunks: usize) -> Shape {
        Shape { size: SMALL_OBJECT_BYTES_MAX, chunks, mark: 0 }
    }

    /// Returns an arena in use up to the beginning of a huge page, and the chunk there.
    ///
    /// `small` is the number of chunks in slabs of small objects. Returns `None` if this machine
    /// advises nothing.
    fn arena_with(small: isize) -> Option<(&'static Arena, usize)> {
        let arena: &'static Arena = Box::leak(Box::new(Arena::new()));
        arena.init().expect("there is memory");
        let begin =
            arena.align_up(HUGE_PAGE_CHUNKS + 1, HUGE_PAGE_CHUNKS).expect("far from the end");
        assert_eq!(arena.alloc(begin, 1), Some(0));
        arena.thp.small.store(small, Relaxed);
        (Host::nodes() == 1).then_some((arena, begin))
    }

    /// Allocates a slab at `chunk`, which must be the next one; returns whether it is advised.
    fn slab_is_advised(arena: &Arena, chunk: usize) -> bool {
        assert_eq!(arena.alloc(1, 1), Some(chunk));
        arena.advise_for_slab(chunk, slab(1));
        arena.is_advised(chunk)
    }

    #[test]
    fn idle_chunks_count_as_dirty_once_advice_is_withdrawn() {
        let Some((arena, begin)) = arena_with(SMALL_CHUNKS_MIN) else { return };
        assert!(slab_is_advised(arena, begin));
        assert_eq!(arena.dirty.load(Relaxed), 0);
        // Before the used chunk is moved away.
        arena.unadvise(begin, 1);
        assert_eq!(arena.dirty.load(Relaxed), HUGE_PAGE_CHUNKS - 1, "their pages are in no count");
    }

    #[test]
    fn first_slab_of_empty_huge_page_advises_it() {
        let Some((arena, begin)) = arena_with(SMALL_CHUNKS_MIN) else { return };
        assert!(slab_is_advised(arena, begin), "the first slab advised nothing");
        assert!(
            !arena.is_advised(begin - 1) && !arena.is_advised(begin + HUGE_PAGE_CHUNKS),
            "adjacent pages were advised"
        );
        assert_eq!(arena.high(), begin + HUGE_PAGE_CHUNKS, "not all of the page is counted");
        assert_eq!(
            arena.find(HUGE_PAGE_CHUNKS - 1, 1),
            Some(begin + 1),
            "the rest of the page is not found"
        );
        assert!(slab_is_advised(arena, begin + 1), "a second slab withdrew the advice");
    }

    #[test]
    fn slabs_advise_nothing_while_small_objects_are_few() {
        let Some((arena, begin)) = arena_with(SMALL_CHUNKS_MIN - 1) else { return };
        let large = Shape { size: SMALL_OBJECT_BYTES_MAX + 1, ..slab(8) };
        arena.advise_for_slab(begin, large);
        assert!(!slab_is_advised(arena, begin), "advised with one chunk too few");
        arena.advise_for_slab(begin, large);
        assert!(!arena.is_advised(begin), "advised for large objects");
        arena.count_slab_freed(slab(1));
        assert_eq!(arena.alloc(HUGE_PAGE_CHUNKS - 1, 1), Some(begin + 1));
        assert!(
            !slab_is_advised(arena, begin + HUGE_PAGE_CHUNKS),
            "advised although a slab was freed"
        );
    }

    #[test]
    fn slabs_advise_no_page_that_is_used_or_dirty() {
        let Some((arena, begin)) = arena_with(SMALL_CHUNKS_MIN) else { return };
        assert_eq!(arena.alloc(1, 1), Some(begin));
        assert!(!slab_is_advised(arena, begin + 1), "advised although a chunk before is used");
        let next = begin + HUGE_PAGE_CHUNKS;
        assert_eq!(arena.alloc(HUGE_PAGE_CHUNKS - 2, 1), Some(begin + 2));
        assert_eq!(arena.alloc(2, 1), Some(next));
        arena.free_clean(next, 1);
        assert!(!slab_is_advised(arena, next), "advised although the chunk behind is used");
        arena.free(next, 2);
        assert!(!slab_is_advised(arena, next), "advised although two chunks have pages");
    }

    /// Covers chunks that have pages because a huge page was filled, not because of a slab.
    #[test]
    fn purge_covers_unused_chunks_of_advised_ranges_after_a_free() {
        let Some((arena, begin)) = arena_with(SMALL_CHUNKS_MIN) else { return };
        assert!(slab_is_advised(arena, begin) && slab_is_advised(arena, begin + 1));
        assert_eq!(arena.dirty.load(Relaxed), 0);
        arena.free(begin, 1);
        assert_eq!(arena.dirty.load(Relaxed), HUGE_PAGE_CHUNKS - 1);
        assert_eq!(arena.purge(usize::MAX), HUGE_PAGE_CHUNKS - 1);
        assert!(!arena.is_advised(begin), "the kernel would fill it up again");
        arena.free(begin + 1, 1);
        assert_eq!(arena.dirty.load(Relaxed), 1, "purged chunks count as dirty");
        assert_eq!(arena.purge(usize::MAX), 1);
        assert!(slab_is_advised(arena, begin), "not advised again");
    }

    #[test]
    fn slabs_advise_nothing_while_much_is_unused() {
        let Some((arena, begin)) = arena_with(SMALL_CHUNKS_MIN) else { return };
        let firsts = (0..20).map(|page| begin + page * HUGE_PAGE_CHUNKS);
        let advised = firsts.filter(|&first| {
            assert_eq!(
                arena.alloc_found(1, 1, || arena.find_at_end(1, HUGE_PAGE_CHUNKS)),
                Some(first)
            );
            arena.advise_for_slab(first, slab(1));
            arena.is_advised(first)
        });
        assert_eq!(advised.count(), 2, "two: the first left less than a page unused");
        assert_eq!(arena.unused_advised(), 2 * (HUGE_PAGE_CHUNKS - 1));
        assert_eq!(arena.alloc(HUGE_PAGE_CHUNKS - 1, 1), Some(begin + 1));
        assert_eq!(arena.unused_advised(), HUGE_PAGE_CHUNKS - 1, "used chunks count as unused");
    }

    #[test]
    fn slab_across_two_huge_pages_advises_both() {
        let Some((arena, begin)) = arena_with(SMALL_CHUNKS_MIN) else { return };
        let first = begin + HUGE_PAGE_CHUNKS - 2;
        assert_eq!(arena.alloc(HUGE_PAGE_CHUNKS - 2, 1), Some(begin));
        assert_eq!(arena.alloc(4, 1), Some(first));
        arena.free_clean(begin, HUGE_PAGE_CHUNKS - 2);
        arena.advise_for_slab(first, slab(4));
        assert!(arena.is_advised(begin) && arena.is_advised(begin + HUGE_PAGE_CHUNKS));
    }

    /// Covers the limit on the mappings that advice takes.
    #[test]
    fn slabs_advise_only_first_pages_of_arena() {
        let Some((arena, begin)) = arena_with(SMALL_CHUNKS_MIN) else { return };
        let far = arena.align_up(0, HUGE_PAGE_CHUNKS).expect("far from the end")
            + ADVISABLE_PAGES * HUGE_PAGE_CHUNKS;
        assert_eq!(arena.advisable_pages(far - 1, 1).count(), 1);
        assert_eq!(arena.advisable_pages(far, 1).count(), 0);
        assert_eq!(arena.advisable_pages(begin - 1, 2).count(), 2);
    }
}

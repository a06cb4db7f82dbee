//! Huge pages that slabs fill, once there are many of small objects: they touch all of their chunks before long, and a fault for 2 MiB takes the time of some for 4 KiB.
//!
//! A slab that is the first in a huge page's range, of which nothing has pages yet, asks for all of it, unless others have left much idle. The first chunks that are given back there make what
//! is still free count as if it had pages, because it has; and who drops pages in it stops that it asks, or the kernel would soon fill it up again. So
//! it may ask once more.
//!
//! Pages belong to a node, and a huge one to whose slab comes first: where there are several nodes none advised. Ranges that ask may each take two more of the
//! process's mappings, so those far into the arena do not.

use core::ops::Range;
use core::sync::atomic::AtomicIsize;

use super::bits::Bits;
use super::slab::Shape;
use super::{Arena, CHUNK_BYTES};
use crate::sys::Host;
use crate::sys::atomic::{
    AtomicU64,
    Ordering::{Relaxed, Release},
};
use crate::sys::machine::Machine as _;

/// The bytes of a huge page, where others have 4 KiB.
pub(super) const HUGE_PAGE_BYTES: usize = 2 * 1024 * 1024;
/// The chunks of a huge page.
const HUGE_PAGE_CHUNKS: usize = HUGE_PAGE_BYTES / CHUNK_BYTES;
/// So many of the arena's first ones may ask, 16 GiB.
const ADVISABLE_PAGES: usize = if cfg!(thiscpu_model) { 64 } else { 8192 };
/// Objects of so many bytes at most are small; of larger ones there may be pages that nobody touches.
const SMALL_OBJECT_BYTES_MAX: usize = 4096;
/// Once slabs of small objects have so many chunks, 4 MiB: a process with less has no page more than it touches.
const SMALL_CHUNKS_MIN: isize = 2 * HUGE_PAGE_CHUNKS as isize;

#[derive(Debug)]
pub(super) struct SlabThp {
    /// How many chunks slabs of small objects have; about, and not modelled.
    small: AtomicIsize,
    /// Which of those pages ask. Set and looked at under the arena's lock.
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

/// The chunks of a slab of that shape, if its objects are small.
fn small_chunks(shape: Shape) -> isize {
    if shape.size <= SMALL_OBJECT_BYTES_MAX { shape.chunks as isize } else { 0 }
}

impl Arena {
    /// The huge pages that may ask and of which some of these chunks are a part, and where they begin.
    fn advisable_pages(
        &self,
        first: usize,
        count: usize,
    ) -> impl Iterator<Item = (usize, usize)> + use<> {
        // The first chunk that begins one.
        let from = self.align_up(0, HUGE_PAGE_CHUNKS).unwrap_or(usize::MAX);
        let begin = first.saturating_sub(from) / HUGE_PAGE_CHUNKS;
        let end =
            (first + count).saturating_sub(from).div_ceil(HUGE_PAGE_CHUNKS).min(ADVISABLE_PAGES);
        (begin..end).map(move |page| (page, from + page * HUGE_PAGE_CHUNKS))
    }

    /// Those that ask.
    fn advised_pages(&self, first: usize, count: usize) -> impl Iterator<Item = (usize, usize)> {
        self.advisable_pages(first, count).filter(|&(page, _)| self.thp.advised().has(page))
    }

    /// Whether a chunk is in one of them; about.
    pub(super) fn is_advised(&self, chunk: usize) -> bool {
        self.advised_pages(chunk, 1).next().is_some()
    }

    /// A slab has just got chunks. Where it is the first in a huge page's range, asks for that.
    pub(crate) fn advise_for_slab(&self, first: usize, shape: Shape) {
        let small = small_chunks(shape);
        // Relaxed, all of it: an estimate.
        let before = self.thp.small.fetch_add(small, Relaxed);
        if small == 0
            || before < SMALL_CHUNKS_MIN
            || Host::nodes() > 1
            || Host::page_bytes() != 4096
        {
            return;
        }
        let _guard = self.lock();
        for (page, begin) in self.advisable_pages(first, shape.chunks) {
            let advised = self.thp.advised();
            if !advised.has(page) && self.may_advise(begin, first..first + shape.chunks) {
                // First: a child that is forked in between counts pages that there are not, and misses none.
                advised.put(page, 1, true);
                if !Host::prefer_huge_pages(self.address(begin), HUGE_PAGE_BYTES, true) {
                    advised.put(page, 1, false);
                }
            }
        }
    }

    /// A slab has ended.
    pub(crate) fn count_slab_freed(&self, shape: Shape) {
        self.thp.small.fetch_sub(small_chunks(shape), Relaxed);
    }

    /// Whether nothing in a huge page's range has pages or is used, but for what a slab has just got, and all of it is accessible now; unless
    /// slabs still have much to fill.
    fn may_advise(&self, begin: usize, own: Range<usize>) -> bool {
        let (high, end) = (self.high(), begin + HUGE_PAGE_CHUNKS);
        let (used, dirty) = (self.used_bits(), self.dirty_bits());
        // What is behind was never used.
        let free = |from: usize, to: usize| {
            let to = to.min(high).max(from);
            used.find(true, from, to) == to
        };
        let near = end.min(high);
        let is_fresh = free(begin, own.start)
            && free(own.end, end)
            && dirty.find(true, begin, near) == near
            && self.unused_advised() <= self.used.load(Relaxed) / 16 + HUGE_PAGE_CHUNKS;
        if !is_fresh || self.commit_to(end).is_err() {
            return false;
        }
        if end > high {
            // What is free below is found, and counted if it has pages.
            self.raise_for_free(high, end - high);
            // Release: pairs with the Acquire in `slab`; it is accessible.
            self.high.store(end, Release);
        }
        true
    }

    /// How many chunks have pages without ever having been anybody's; for sure under the lock.
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

    /// These chunks are about to be given back, or all free ones to be dropped: what else is free in their huge pages has pages too. Under the lock.
    pub(super) fn count_dirty(&self, first: usize, count: usize) {
        for (_, begin) in self.advised_pages(first, count) {
            let (used, dirty) = (self.used_bits(), self.dirty_bits());
            let clean = (begin..begin + HUGE_PAGE_CHUNKS)
                .filter(|&chunk| !used.has(chunk) && dirty.set(chunk));
            self.dirty.store(self.dirty.load(Relaxed) + clean.count(), Relaxed);
        }
    }

    /// Pages of free chunks are about to be dropped, by who has taken them for that.
    pub(super) fn unadvise(&self, first: usize, count: usize) {
        if self.advised_pages(first, count).next().is_none() {
            return;
        }
        let _guard = self.lock();
        for (page, begin) in self.advised_pages(first, count) {
            // First: a child that is forked in between does it once more. Nobody asks meanwhile, since those chunks are this thread's; and what is free
            // besides them was counted when the first were given back.
            Host::prefer_huge_pages(self.address(begin), HUGE_PAGE_BYTES, false);
            self.thp.advised().put(page, 1, false);
        }
    }
}

#[cfg(all(test, not(thiscpu_model)))]
mod tests {
    use super::*;

    const fn slab(chunks: usize) -> Shape {
        Shape { size: SMALL_OBJECT_BYTES_MAX, chunks, mark: 0 }
    }

    /// A arena with chunks in use up to where a huge page begins, and that chunk; and so many slabs of small objects. `None` where none advised.
    fn used(small: isize) -> Option<(&'static Arena, usize)> {
        let arena: &'static Arena = Box::leak(Box::new(Arena::new()));
        arena.init().expect("there is memory");
        let begin =
            arena.align_up(HUGE_PAGE_CHUNKS + 1, HUGE_PAGE_CHUNKS).expect("far from the end");
        assert_eq!(arena.alloc(begin, 1), Some(0));
        arena.thp.small.store(small, Relaxed);
        (Host::nodes() == 1).then_some((arena, begin))
    }

    /// Takes the chunk that is next for a slab.
    fn taken(arena: &Arena, chunk: usize) -> bool {
        assert_eq!(arena.alloc(1, 1), Some(chunk));
        arena.advise_for_slab(chunk, slab(1));
        arena.is_advised(chunk)
    }

    /// Gives back what has no pages.
    fn give_clean(arena: &Arena, first: usize, count: usize) {
        let _guard = arena.lock();
        arena.mark_free(first, count, false);
    }

    #[test]
    fn the_first_slab_of_many_asks() {
        let Some((arena, begin)) = used(SMALL_CHUNKS_MIN) else { return };
        assert!(taken(arena, begin), "the first does not");
        assert!(
            !arena.is_advised(begin - 1) && !arena.is_advised(begin + HUGE_PAGE_CHUNKS),
            "so do others"
        );
        assert_eq!(arena.high(), begin + HUGE_PAGE_CHUNKS, "not all of it is counted");
        assert_eq!(arena.find(HUGE_PAGE_CHUNKS - 1, 1), Some(begin + 1), "the rest is not found");
        assert!(taken(arena, begin + 1), "it does no longer");
    }

    #[test]
    fn none_of_few_asks() {
        let Some((arena, begin)) = used(SMALL_CHUNKS_MIN - 1) else { return };
        let large = Shape { size: SMALL_OBJECT_BYTES_MAX + 1, ..slab(8) };
        arena.advise_for_slab(begin, large);
        assert!(!taken(arena, begin), "one less is not enough");
        arena.advise_for_slab(begin, large);
        assert!(!arena.is_advised(begin), "large objects ask, once there are many small ones");
        arena.count_slab_freed(slab(1));
        assert_eq!(arena.alloc(HUGE_PAGE_CHUNKS - 1, 1), Some(begin + 1));
        assert!(!taken(arena, begin + HUGE_PAGE_CHUNKS), "one has ended");
    }

    #[test]
    fn no_range_asks_in_which_something_is() {
        let Some((arena, begin)) = used(SMALL_CHUNKS_MIN) else { return };
        assert_eq!(arena.alloc(1, 1), Some(begin));
        assert!(!taken(arena, begin + 1), "a chunk before is used");
        let next = begin + HUGE_PAGE_CHUNKS;
        assert_eq!(arena.alloc(HUGE_PAGE_CHUNKS - 2, 1), Some(begin + 2));
        assert_eq!(arena.alloc(2, 1), Some(next));
        give_clean(arena, next, 1);
        assert!(!taken(arena, next), "the chunk behind is used");
        arena.free(next, 2);
        assert!(!taken(arena, next), "two have pages");
    }

    /// What has not been a slab's has pages all the same where a huge one is.
    #[test]
    fn all_that_is_free_is_dropped_once_something_was_given_back() {
        let Some((arena, begin)) = used(SMALL_CHUNKS_MIN) else { return };
        assert!(taken(arena, begin) && taken(arena, begin + 1));
        assert_eq!(arena.dirty.load(Relaxed), 0);
        arena.free(begin, 1);
        assert_eq!(arena.dirty.load(Relaxed), HUGE_PAGE_CHUNKS - 1);
        assert_eq!(arena.purge(usize::MAX), HUGE_PAGE_CHUNKS - 1);
        assert!(!arena.is_advised(begin), "the kernel is to fill it up again");
        arena.free(begin + 1, 1);
        assert_eq!(arena.dirty.load(Relaxed), 1, "what was dropped has pages");
        assert_eq!(arena.purge(usize::MAX), 1);
        assert!(taken(arena, begin), "it asks no more");
    }

    /// Where each of many takes the first chunk of a range, most of it is idle.
    #[test]
    fn little_is_idle() {
        let Some((arena, begin)) = used(SMALL_CHUNKS_MIN) else { return };
        let firsts = (0..20).map(|page| begin + page * HUGE_PAGE_CHUNKS);
        let asking = firsts.filter(|&first| {
            assert_eq!(
                arena.alloc_found(1, || arena.find_at_end(1, HUGE_PAGE_CHUNKS)),
                Some(first)
            );
            arena.advise_for_slab(first, slab(1));
            arena.is_advised(first)
        });
        assert_eq!(asking.count(), 2, "a second, since the first has left less than all");
        assert_eq!(arena.unused_advised(), 2 * (HUGE_PAGE_CHUNKS - 1));
        assert_eq!(arena.alloc(HUGE_PAGE_CHUNKS - 1, 1), Some(begin + 1));
        assert_eq!(arena.unused_advised(), HUGE_PAGE_CHUNKS - 1, "it is used");
    }

    /// Of a slab that lies across, both parts may be the first.
    #[test]
    fn both_that_a_slab_is_in_ask() {
        let Some((arena, begin)) = used(SMALL_CHUNKS_MIN) else { return };
        let first = begin + HUGE_PAGE_CHUNKS - 2;
        assert_eq!(arena.alloc(HUGE_PAGE_CHUNKS - 2, 1), Some(begin));
        assert_eq!(arena.alloc(4, 1), Some(first));
        give_clean(arena, begin, HUGE_PAGE_CHUNKS - 2);
        arena.advise_for_slab(first, slab(4));
        assert!(arena.is_advised(begin) && arena.is_advised(begin + HUGE_PAGE_CHUNKS));
    }

    /// Only so many may: the others would be mappings that others need.
    #[test]
    fn none_far_in_asks() {
        let Some((arena, begin)) = used(SMALL_CHUNKS_MIN) else { return };
        let far = arena.align_up(0, HUGE_PAGE_CHUNKS).expect("far from the end")
            + ADVISABLE_PAGES * HUGE_PAGE_CHUNKS;
        assert_eq!(arena.advisable_pages(far - 1, 1).count(), 1);
        assert_eq!(arena.advisable_pages(far, 1).count(), 0);
        assert_eq!(arena.advisable_pages(begin - 1, 2).count(), 2);
    }
}

//! Unmapping free chunks while address space is scarce.
//!
//! Address space counts as *scarce* from the moment on that a limit below four times the arena was
//! seen, or that the system refused a mapping no larger than the memory in use. Then a thread that
//! frees unmaps free chunks, if those that are mapped exceed 16 MiB plus a sixteenth of the used
//! ones. It unmaps whole runs of a mebibyte or more, until half of that is left, but at most four
//! runs, because each takes a fence. Chunks committed ahead do not count.
//!
//! No section loads the memory of a chunk that is free: a section that pops an object loads the
//! object only while its slab counts it as allocated. A fence before each unmapping keeps that true
//! whatever sections load. Chunks that were ever part of a cache's slab are *kept*: the program may
//! read the objects of a [`PerCpuStack`](crate::PerCpuStack) late, which no fence rules out.
//!
//! The chunks are marked as used meanwhile, as by a purge, and recorded where a purge records its
//! own. A child that is forked before they are marked as unmapped frees them again. After that it
//! cannot know whether they are mapped, and loses their address space.

use super::layout::layout;
use super::purge::count_purged;
use super::{Arena, CHUNK_BYTES};
use crate::sys::Host;
use crate::sys::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use crate::sys::bits::Bits;
use crate::sys::machine::Machine as _;
use crate::sys::{fence, startup};
use crate::tier::Tier;

const MIB_CHUNKS: usize = (1024 * 1024) / CHUNK_BYTES;
/// Number of chunks that are unmapped at once at least, so that holes are few.
const UNMAP_CHUNKS_MIN: usize = MIB_CHUNKS;
/// Number of chunks that are unmapped at once at most. No allocation finds them meanwhile.
const UNMAP_CHUNKS_MAX: usize = 256 * MIB_CHUNKS;
/// Number of runs that one call unmaps at most.
const UNMAP_RUNS_MAX: usize = 4;
/// Growth, in chunks, after which the limits are looked at again.
const LOOK_CHUNKS: usize = 16 * MIB_CHUNKS;

#[derive(Debug)]
pub(super) struct Scarcity {
    /// Whether address space is scarce; never cleared.
    is_scarce: AtomicBool,
    /// The fewest free chunks that were mapped since no more could be unmapped.
    stuck: AtomicUsize,
}

impl Scarcity {
    pub(super) const fn new() -> Scarcity {
        Scarcity { is_scarce: AtomicBool::new(false), stuck: AtomicUsize::new(0) }
    }
}

impl Arena {
    /// Returns the bits of chunks that were part of a cache's slab, and so stay mapped.
    pub(super) fn kept_bits(&self) -> Bits<'static> {
        self.bits(layout(self.limit.load(Relaxed)).kept)
    }

    /// Marks the chunks of a cache's slab as kept.
    pub(super) fn keep(&self, first: usize, count: usize) {
        // Bits are only ever set, so a thread that finds all set needs no lock.
        if self.kept_bits().find(false, first, first + count) < first + count {
            let _guard = self.lock();
            self.kept_bits().put(first, count, true);
        }
    }

    /// Returns whether address space is scarce; an estimate.
    pub(super) fn is_scarce(&self) -> bool {
        self.scarcity.is_scarce.load(Relaxed)
    }

    /// Looks for a limit, after the arena has grown from `before` to `committed` chunks.
    pub(super) fn look_for_limit(&self, before: usize) {
        let is_due = before / LOOK_CHUNKS != self.committed.load(Relaxed) / LOOK_CHUNKS;
        if (is_due || before == 0) && !self.is_scarce() && self.is_limited() {
            self.scarcity.is_scarce.store(true, Relaxed);
        }
    }

    /// Records that there was no memory for `count` chunks.
    pub(super) fn note_refusal(&self, count: usize) {
        let is_small = count <= self.used.load(Relaxed).max(LOOK_CHUNKS);
        if !self.is_scarce() && (is_small || self.is_limited()) {
            self.scarcity.is_scarce.store(true, Relaxed);
        }
    }

    /// Returns whether the process may have less memory than four times the arena.
    ///
    /// With a higher limit, free chunks never take much of it.
    fn is_limited(&self) -> bool {
        Host::memory_limit() / 4 < self.committed.load(Relaxed) * CHUNK_BYTES
    }

    /// Returns how many free chunks are mapped, without those committed ahead; an estimate.
    fn mapped_excess(&self) -> usize {
        let ahead = self.committed.load(Relaxed).saturating_sub(self.high());
        self.mapped_free().saturating_sub(ahead)
    }

    /// Returns how many free chunks may be mapped while address space is scarce.
    fn mapped_free_max(&self) -> usize {
        16 * MIB_CHUNKS + self.used.load(Relaxed) / 16
    }

    /// Returns whether a call that frees should unmap chunks.
    #[inline]
    pub(super) fn is_unmap_due(&self) -> bool {
        if !self.is_scarce() {
            return false;
        }
        // Relaxed: an estimate.
        let (mapped, stuck) = (self.mapped_excess(), self.scarcity.stuck.load(Relaxed));
        if mapped < stuck {
            self.scarcity.stuck.store(mapped, Relaxed);
        }
        mapped > self.mapped_free_max().max(stuck + MIB_CHUNKS)
    }

    /// Unmaps free chunks, if no other thread does or purges. The caller holds no lock.
    ///
    /// If it cannot unmap enough, no call tries again before 1 MiB more was freed.
    #[cold]
    pub(super) fn unmap_excess(&self) {
        let Some(_guard) = self.purging.try_lock() else { return };
        let (mut end, kept) = (usize::MAX, self.mapped_free_max() / 2);
        for _ in 0..UNMAP_RUNS_MAX {
            if self.mapped_excess() <= kept {
                return;
            }
            let taken = self.take_mapped(end);
            end = match taken {
                Some((first, count)) if self.unmap_taken(first, count) => first,
                // Otherwise each call that frees would try again.
                _ => return self.scarcity.stuck.store(self.mapped_excess(), Relaxed),
            };
        }
    }

    /// Takes a free run that may be unmapped, the last one below `end`; or a part of it.
    fn take_mapped(&self, end: usize) -> Option<(usize, usize)> {
        let _guard = self.lock();
        let others = [self.used_bits(), self.unmapped_bits(), self.kept_bits()];
        let mut end = end.min(self.high());
        loop {
            end = Bits::after_last_of_none(others, true, 0, end);
            let first = Bits::after_last_of_none(others, false, 0, end);
            if end - first >= UNMAP_CHUNKS_MIN {
                let first = first.max(end.saturating_sub(UNMAP_CHUNKS_MAX));
                self.take_in_flight(first, end - first);
                return Some((first, end - first));
            }
            if first == 0 {
                return None;
            }
            end = first;
        }
    }

    /// Unmaps chunks that were taken, and frees them; returns false if it cannot or must not.
    fn unmap_taken(&self, first: usize, count: usize) -> bool {
        self.unadvise(first, count);
        if startup::chosen() != Some(Tier::Atomic) && !fence::by_membarrier() {
            self.return_purged(first, count, true);
            return false;
        }
        let dirty = {
            let _guard = self.lock();
            self.unmapped_bits().put(first, count, true);
            self.dirty_bits().count(first, count)
        };
        // SAFETY: the chunks were free and are marked as used, so no thread uses them. The fence
        // has ended each section that may have loaded an address in them while it was an object.
        if !unsafe { Host::unmap(self.address(first), count * CHUNK_BYTES) } {
            {
                let _guard = self.lock();
                self.unmapped_bits().put(first, count, false);
            }
            self.return_purged(first, count, true);
            return false;
        }
        count_purged(dirty);
        self.return_unmapped(first, count);
        true
    }

    fn return_unmapped(&self, first: usize, count: usize) {
        let _guard = self.lock();
        self.add_holes(count as isize);
        self.mark_free(first, count, false);
        self.purging.end_in_flight();
    }
}

#[cfg(all(test, not(thiscpu_model)))]
mod tests {
    use thiscpu_test_support::child;

    use super::*;

    /// Returns an arena with 2,000 used chunks, of which 20 are kept, where space is scarce.
    fn scarce_arena() -> &'static Arena {
        let arena: &'static Arena = Box::leak(Box::new(Arena::new()));
        assert_eq!(arena.alloc(2_000, 1), Some(0));
        arena.keep(1_000, 20);
        arena.scarcity.is_scarce.store(true, Relaxed);
        arena
    }

    fn is_mapped(arena: &Arena, first: usize, count: usize) -> bool {
        Host::is_mapped(arena.address(first), count * CHUNK_BYTES)
    }

    /// Fences need a process that is registered for them.
    fn has_fences() -> bool {
        crate::tier().is_ok() && fence::by_membarrier()
    }

    #[test]
    fn free_chunks_are_unmapped_while_scarce() {
        if !has_fences() {
            return eprintln!("skipped: membarrier is denied");
        }
        let arena = scarce_arena();
        // Chunks committed ahead do not count, or there would be too many.
        arena.free(0, 240);
        assert!(!arena.is_unmap_due());
        arena.free(500, 1_500);
        assert!(arena.is_unmap_due());
        arena.unmap_excess();
        let left = arena.mapped_excess();
        assert!((1..=arena.mapped_free_max() / 2).contains(&left), "{left} stay mapped");
        assert!(is_mapped(arena, 1_000, 20), "chunks of a cache were unmapped");
        assert!(!is_mapped(arena, 1_999, 1) && !is_mapped(arena, 999, 1));
        assert_eq!(arena.holes.load(Relaxed), arena.unmapped_bits().count(0, arena.high()));
        // They are used again.
        let first = arena.alloc(1_400, 1).expect("address space");
        assert!(is_mapped(arena, first, 1_400));
    }

    #[test]
    fn one_call_unmaps_few_runs() {
        if !has_fences() {
            return eprintln!("skipped: membarrier is denied");
        }
        let arena = scarce_arena();
        (0..9).for_each(|at| arena.free(100 * at, 99));
        arena.unmap_excess();
        assert_eq!(arena.holes.load(Relaxed), UNMAP_RUNS_MAX * 99);
        assert!(arena.is_unmap_due(), "the next call does not go on");
    }

    #[test]
    fn limit_far_above_the_arena_is_no_scarcity() {
        let arena = scarce_arena();
        child::assert_holds(|| {
            arena.scarcity.is_scarce.store(false, Relaxed);
            [(5, false), (3, true)].into_iter().all(|(times, is_scarce)| {
                let most = times * arena.committed.load(Relaxed) * CHUNK_BYTES;
                let limit = libc::rlimit { rlim_cur: most as u64, rlim_max: libc::RLIM_INFINITY };
                // SAFETY: the structure is valid.
                assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
                arena.look_for_limit(0);
                arena.is_scarce() == is_scarce
            })
        });
    }

    /// Makes mappings until the process has as many as it may have; returns whether it has.
    fn exhaust_mappings() -> bool {
        const PAGES: usize = 1 << 18;
        let (page, read) = (Host::page_bytes(), libc::PROT_READ);
        let start = Host::map(PAGES * page).expect("address space");
        // SAFETY: no code uses these pages.
        let split =
            |at: usize| unsafe { libc::mprotect((start + at * page) as *mut _, page, read) };
        (0..PAGES).step_by(2).any(|at| split(at) != 0)
    }

    #[test]
    fn chunks_that_cannot_be_unmapped_are_no_holes() {
        if !has_fences() {
            return eprintln!("skipped: membarrier is denied");
        }
        let arena = scarce_arena();
        arena.free(500, 1_000);
        child::assert_holds(|| {
            if !exhaust_mappings() {
                return true;
            }
            assert!(arena.is_unmap_due());
            arena.unmap_excess();
            assert!(is_mapped(arena, 500, 1_000), "a mapping was split");
            assert_eq!(arena.unmapped_bits().count(0, arena.high()), 0);
            assert_eq!(arena.holes.load(Relaxed), 0);
            assert!(!arena.is_unmap_due(), "each call that frees would try again");
            arena.alloc(1_000, 1) == Some(500)
        });
    }

    #[test]
    fn excess_that_stays_is_not_looked_for_again() {
        let arena = scarce_arena();
        arena.keep(0, 1_000);
        arena.free(0, 1_000);
        arena.unmap_excess();
        assert!(is_mapped(arena, 0, 1_000));
        assert!(!arena.is_unmap_due());
        arena.free(1_100, MIB_CHUNKS + 1);
        assert!(arena.is_unmap_due(), "nothing is unmapped any more");
    }

    #[test]
    fn short_runs_stay_mapped() {
        let arena = scarce_arena();
        (0..60).for_each(|at| arena.free(16 * at, UNMAP_CHUNKS_MIN - 1));
        arena.unmap_excess();
        assert!(is_mapped(arena, 0, 960));
    }

    #[test]
    fn child_frees_or_loses_what_its_parent_was_unmapping() {
        for is_marked in [false, true] {
            let arena = scarce_arena();
            arena.free(100, 100);
            let (first, count) = arena.take_mapped(150).expect("a free run");
            if is_marked {
                // The mark may have been set in part.
                arena.unmapped_bits().put(first, 1, true);
            }
            assert!(arena.recover_in_flight());
            arena.recount();
            let is_used = arena.used_bits().find(false, first, first + count) == first + count;
            assert_eq!(is_used, is_marked);
            assert_eq!(arena.foreign.load(Relaxed), if is_marked { count } else { 0 });
            assert!(!arena.recover_in_flight());
        }
    }

    #[test]
    fn refused_mapping_no_larger_than_the_heap_means_scarcity() {
        let arena = scarce_arena();
        for (count, is_scarce) in [(3_000, arena.is_limited()), (2_000, true)] {
            arena.scarcity.is_scarce.store(false, Relaxed);
            arena.note_refusal(count);
            assert_eq!(arena.is_scarce(), is_scarce, "{count} chunks were refused");
        }
    }
}

//! Holes: free chunks below the end of the arena at which nothing of ours is mapped.
//!
//! They come from blocks that were moved, from the room behind these, and from memory that was
//! unmapped while address space was scarce. A chunk that is used and marked as unmapped is in
//! transit, or lost: something else may be mapped there.
//!
//! The mark is set before a chunk is unmapped, and cleared after it is mapped. So a child that is
//! forked in between at worst finds a mapping in its way where the mark says that there is none. It
//! then skips those chunks, as it skips foreign mappings.

use super::layout::layout;
use super::{Arena, CHUNK_BYTES};
use crate::sys::Host;
use crate::sys::atomic::Ordering::{Relaxed, Release};
use crate::sys::bits::Bits;
use crate::sys::machine::Machine as _;

impl Arena {
    /// Returns the bits of chunks that nothing of ours is mapped at.
    pub(super) fn unmapped_bits(&self) -> Bits<'static> {
        self.bits(layout(self.limit.load(Relaxed)).unmapped)
    }

    /// Returns how many free chunks are mapped; an estimate without the lock.
    pub(super) fn mapped_free(&self) -> usize {
        let others = [&self.used, &self.foreign, &self.holes].map(|count| count.load(Relaxed));
        self.committed.load(Relaxed).saturating_sub(others.iter().sum())
    }

    /// Changes the number of holes; the caller holds the lock.
    ///
    /// It is raised before chunks become holes and lowered afterwards, so that 0 means none.
    pub(super) fn add_holes(&self, more: isize) {
        let holes = self.holes.load(Relaxed).saturating_add_signed(more);
        self.holes.store(holes, Relaxed);
    }

    /// Maps the holes among free chunks that are about to be used; the caller holds the lock.
    ///
    /// On failure, the holes stay. Those in which something else is mapped (`EEXIST`) are then lost
    /// to the arena.
    pub(super) fn map_holes(&self, first: usize, count: usize) -> Result<(), i32> {
        if self.holes.load(Relaxed) == 0 {
            return Ok(());
        }
        let (unmapped, end) = (self.unmapped_bits(), first + count);
        let next_hole = |at: usize, end: usize| {
            let from = unmapped.find(true, at, end);
            (from < end).then(|| (from, unmapped.find(false, from, end)))
        };
        let mut at = first;
        while let Some((from, to)) = next_hole(at, end) {
            if let Err(error) = Host::map_at(self.address(from), (to - from) * CHUNK_BYTES) {
                let mut at = first;
                while let Some((from, to)) = next_hole(at, from) {
                    let bytes = (to - from) * CHUNK_BYTES;
                    // SAFETY: this call has mapped these chunks, and no other code knows of it.
                    if !unsafe { Host::unmap(self.address(from), bytes) } {
                        self.clear_unmapped(from, to - from);
                    }
                    at = to;
                }
                if error == libc::EEXIST {
                    self.lose_holes(from, to - from);
                }
                return Err(error);
            }
            at = to;
        }
        self.clear_unmapped(first, count);
        Ok(())
    }

    /// Clears the marks of holes that were mapped; the caller holds the lock.
    pub(super) fn clear_unmapped(&self, first: usize, count: usize) {
        let mapped = self.unmapped_bits().put(first, count, false);
        self.add_holes(-(mapped as isize));
    }

    /// Counts holes as used forever, because something else is mapped there.
    pub(super) fn lose_holes(&self, first: usize, count: usize) {
        self.raise_after(first + count);
        let lost = self.used_bits().put(first, count, true);
        self.foreign.store(self.foreign.load(Relaxed) + lost, Relaxed);
        self.add_holes(-(lost as isize));
    }

    /// Extends the arena by holes, up to `end`; the caller holds the lock.
    pub(super) fn add_holes_up_to(&self, end: usize) -> Result<(), i32> {
        let committed = self.committed.load(Relaxed);
        if end > committed {
            self.map_metadata(end)?;
            let tail = self.used_bits().after_last(0, self.high());
            self.raise_max_run(tail, end);
            self.commit_exactly(end, false)?;
            // Release: pairs with the Acquire in `slab`, so that a chunk below `high` has metadata.
            self.high.store(self.high().max(end), Release);
        }
        Ok(())
    }
}

#[cfg(all(test, not(thiscpu_model)))]
pub(super) mod tests {
    use thiscpu_test_support::child;

    use super::*;
    use crate::slab::arena::NO_TAG;

    /// Returns an arena of which chunks 0 to 9 are used, 10 to 19 holes, and 20 is used.
    fn arena_with_holes() -> &'static Arena {
        let arena: &'static Arena = Box::leak(Box::new(Arena::new()));
        assert_eq!(arena.alloc(21, 1), Some(0));
        make_holes(arena, 10, 10);
        arena
    }

    /// Frees and unmaps chunks.
    pub(in crate::slab::arena) fn make_holes(arena: &Arena, first: usize, count: usize) {
        // SAFETY: the callers have allocated these chunks and use them no more.
        unsafe { Host::unmap(arena.address(first), count * CHUNK_BYTES) };
        let _guard = arena.lock();
        arena.add_holes(count as isize);
        arena.unmapped_bits().put(first, count, true);
        arena.mark_free(first, count, false);
        arena.used.store(arena.used.load(Relaxed) - count, Relaxed);
    }

    fn write(arena: &Arena, first: usize, count: usize) {
        for chunk in first..first + count {
            // SAFETY: the callers have allocated these chunks.
            unsafe { (arena.address(chunk) as *mut u8).write(1) };
        }
    }

    #[test]
    fn hole_is_mapped_before_it_is_handed_out() {
        let arena = arena_with_holes();
        for (count, first) in [(4, 10), (6, 14), (1, 21)] {
            assert_eq!(arena.alloc(count, 1), Some(first));
            write(arena, first, count);
        }
        assert_eq!(arena.holes.load(Relaxed), 0);
        assert_eq!(arena.extend(30, 1), Some(()));
    }

    #[test]
    fn run_behind_grows_over_holes() {
        let arena = arena_with_holes();
        assert_eq!(arena.extend(10, 10), Some(()));
        write(arena, 10, 10);
        assert_eq!(arena.unmapped_bits().count(0, 21), 0);
    }

    #[test]
    fn mapped_chunks_are_preferred_to_holes() {
        let arena = arena_with_holes();
        assert_eq!(arena.alloc(30, 1), Some(21));
        arena.free(21, 20);
        assert_eq!(arena.alloc(5, 1), Some(21));
        assert_eq!(arena.alloc(16, 1), Some(51), "neither 15 mapped chunks nor 10 holes suffice");
        assert_eq!(arena.alloc(15, 1), Some(26));
        assert_eq!(arena.alloc(8, 1), Some(10));
    }

    #[test]
    fn mapped_chunks_are_found_when_holes_cannot_be_mapped() {
        let arena = arena_with_holes();
        assert_eq!(arena.committed.load(Relaxed), 32);
        child::assert_holds(|| {
            let no_more = libc::rlimit { rlim_cur: 0, rlim_max: libc::RLIM_INFINITY };
            // SAFETY: the structure is valid, and the child allocates nothing.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const no_more) }, 0);
            // The first run that is long enough is that of the holes.
            let is_behind = arena.alloc(9, 1) == Some(21);
            arena.free(21, 9);
            is_behind && arena.alloc(10, 1) == Some(21) && arena.alloc(2, 1).is_none()
        });
    }

    #[test]
    fn holes_with_foreign_mappings_are_lost() {
        let arena = arena_with_holes();
        assert_eq!(Host::map_at(arena.address(13), CHUNK_BYTES), Ok(()));
        let first = arena.alloc(10, 1).expect("address space");
        write(arena, first, 10);
        assert!(first > 20, "the foreign mapping was taken");
        // The holes before the mapping were unmapped again, and all were skipped.
        assert!(!Host::is_mapped(arena.address(10), CHUNK_BYTES));
        assert_eq!((arena.foreign.load(Relaxed), arena.holes.load(Relaxed)), (10, 0));
        assert_eq!(arena.tag(10), NO_TAG);
    }

    /// Covers a fork between the mapping of holes and the change of their marks.
    #[test]
    fn child_skips_holes_that_its_parent_was_mapping() {
        let arena = arena_with_holes();
        assert_eq!(Host::map_at(arena.address(10), 10 * CHUNK_BYTES), Ok(()));
        let first = arena.alloc(10, 1).expect("address space");
        assert!(first > 20, "the child uses a mapping that it cannot know");
    }

    #[test]
    fn holes_at_the_end_are_handed_out() {
        let arena: &'static Arena = Box::leak(Box::new(Arena::new()));
        assert_eq!(arena.alloc(3, 1), Some(0));
        let committed = arena.committed.load(Relaxed);
        {
            let _guard = arena.lock();
            assert_eq!(arena.add_holes_up_to(committed + 3_000), Ok(()));
        }
        assert_eq!(arena.holes.load(Relaxed), 3_000);
        for first in [3, 2_003] {
            assert_eq!(arena.alloc(2_000, 1), Some(first));
            write(arena, first, 2_000);
        }
        assert_eq!(arena.holes.load(Relaxed), 0);
        arena.recount();
        assert_eq!(arena.holes.load(Relaxed), 0);
    }
}

//! Growth of large blocks without copying: over holes behind them, or by moving their pages.
//!
//! A block moves by `mremap` to holes with room behind them, so that it moves again only when it
//! has doubled. `mremap` replaces mappings at its target. So the target is reserved first, which
//! fails if something else is mapped there. The block always grows as it moves: then every kernel
//! refuses a block of several mappings as a whole, and moves no part of it. A block on chunks that
//! a cache's slab once had is copied, because those stay mapped.
//!
//! No lock is held while pages move. A child that is forked meanwhile never uses the two ranges
//! again: both are marked as used, and the thread that resized the block does not exist in it.

use super::huge_pages::HUGE_PAGE_BYTES;
use super::{Arena, CHUNK_BYTES};
use crate::sys::Host;
use crate::sys::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::sys::machine::Machine as _;

/// Number of chunks, 1 MiB, from which on a block moves rather than being copied.
pub(super) const MOVED_CHUNKS_MIN: usize = 16;
/// A block's address stays congruent modulo this when it moves, so that page tables move.
pub(super) const MOVE_ALIGN_BYTES: usize = HUGE_PAGE_BYTES;
const MOVE_ALIGN_CHUNKS: usize = MOVE_ALIGN_BYTES / CHUNK_BYTES;
/// Number of chunks, 1 GiB, that are at most left as room behind a block.
const ROOM_CHUNKS_MAX: usize = (1 << 30) / CHUNK_BYTES;
/// Number of moves that the system has refused after which no more are tried.
///
/// Each may have left its target reserved.
const FAILURES_MAX: usize = 64;

static FAILURES: AtomicUsize = AtomicUsize::new(0);

impl Arena {
    /// Grows a large block in place, from `before` chunks; `None` if it cannot.
    pub(super) fn grow(&self, first: usize, before: usize, wanted: usize) -> Option<()> {
        self.grow_over_holes(first, before, wanted)
            .or_else(|| self.extend(first + before, wanted - before))
    }

    /// Grows a block's own mapping over holes behind it, so that it stays one mapping.
    fn grow_over_holes(&self, first: usize, before: usize, wanted: usize) -> Option<()> {
        let _guard = self.lock();
        let (end, high) = (first + before, self.high());
        let wanted_end = first.checked_add(wanted)?;
        let below = wanted_end.min(high).max(end);
        if self.unmapped_bits().find_without(self.used_bits(), false, end, below) < below {
            return None;
        }
        if wanted_end > high {
            if self.committed.load(Relaxed) > high {
                // The chunks above `high` are mapped, so `mremap` cannot grow over them.
                return None;
            }
            self.add_holes_up_to(wanted_end + self.room(wanted))
                .or_else(|_| self.add_holes_up_to(wanted_end))
                .ok()?;
        }
        let bytes = [before, wanted].map(|chunks| chunks * CHUNK_BYTES);
        // SAFETY: the block's owner is resizing it. Behind it are holes of the arena, and the
        // kernel refuses if something else is mapped there.
        unsafe { Host::grow(self.address(first), bytes[0], bytes[1]) }.ok()?;
        self.clear_unmapped(end, wanted - before);
        self.mark_used(end, wanted - before);
        Some(())
    }

    /// Moves the pages of a large block to where it can have `wanted` chunks, which are more.
    ///
    /// `publish` gets the new first chunk. It makes the block known there, and no longer here. It
    /// is called under the arena's lock.
    /// Returns the new first chunk, or `None` if the block has not moved.
    pub(super) fn move_grown(
        &self,
        first: usize,
        before: usize,
        wanted: usize,
        publish: impl FnOnce(usize),
    ) -> Option<usize> {
        let end = first + before;
        // Relaxed: an estimate. No bit is set meanwhile, because the block has the chunks.
        if FAILURES.load(Relaxed) >= FAILURES_MAX || self.kept_bits().find(true, first, end) < end {
            return None;
        }
        if !self.is_one_mapping(first, before) {
            return None;
        }
        let to = self.take_target(first, wanted)?;
        let [from_address, to_address] = [first, to].map(|chunk| self.address(chunk));
        let bytes = [before, wanted].map(|chunks| chunks * CHUNK_BYTES);
        if let Err(error) = Host::reserve_at(to_address, bytes[1]) {
            self.return_target(to, wanted, error == libc::EEXIST);
            return None;
        }
        // SAFETY: the block's owner is resizing it. This call has reserved the target, and no one
        // else knows of it.
        if unsafe { Host::remap(from_address, bytes[0], to_address, bytes[1]) }.is_err() {
            FAILURES.fetch_add(1, Relaxed);
            // Whether the target is still reserved depends on the kernel.
            self.return_target(to, wanted, true);
            return None;
        }
        let _guard = self.lock();
        publish(to);
        self.end_move(first, before, to, wanted);
        Some(to)
    }

    /// Returns whether a block is in one mapping, as the kernel requires for a move.
    ///
    /// Otherwise a move would lose its target, and blocks of several mappings are common: in forked
    /// children, and where the program protects or advises a part of its block. Stops all moves if
    /// the system denies `mremap`.
    fn is_one_mapping(&self, first: usize, count: usize) -> bool {
        let _guard = self.lock();
        let end = first + count;
        if end < self.high() && self.used_bits().has(end) && self.unmapped_bits().has(end) {
            // Another block may be about to move there, so nothing may be mapped there.
            return true;
        }
        let (address, bytes) = (self.address(first), count * CHUNK_BYTES);
        // The kernel grows no part of several mappings.
        // SAFETY: the block's owner is resizing it. With the lock, no other thread maps the page
        // behind it for the arena, and the kernel replaces no mapping there.
        match unsafe { Host::grow(address, bytes, bytes + Host::page_bytes()) } {
            Ok(()) => {
                // SAFETY: this call has mapped the page, and no one else knows of it.
                unsafe { Host::unmap(address + bytes, Host::page_bytes()) };
                true
            }
            // Something is mapped behind it.
            Err(libc::ENOMEM) => true,
            Err(libc::EPERM | libc::ENOSYS) => {
                FAILURES.store(FAILURES_MAX, Relaxed);
                false
            }
            Err(_) => false,
        }
    }

    /// Returns the number of holes to leave behind a block.
    fn room(&self, chunks: usize) -> usize {
        if self.is_scarce() { 0 } else { chunks.min(ROOM_CHUNKS_MAX) }
    }

    /// Takes holes for a block and marks them as used; returns the first.
    fn take_target(&self, from: usize, wanted: usize) -> Option<usize> {
        let _guard = self.lock();
        let count = wanted + self.room(wanted) + MOVE_ALIGN_CHUNKS - 1;
        let run = self.find_holes(count).or_else(|| {
            let end = self.committed.load(Relaxed);
            self.add_holes_up_to(end + count).ok()?;
            Some(end)
        })?;
        let offset = from.wrapping_sub(run) % MOVE_ALIGN_CHUNKS;
        let to = run + offset;
        self.raise_after(to + wanted);
        self.used_bits().put(to, wanted, true);
        // Before the holes are fewer, or these would seem to be free and mapped. The peak is raised
        // when the block has left its old chunks.
        self.used.store(self.used.load(Relaxed) + wanted, Relaxed);
        self.add_holes(-(wanted as isize));
        Some(to)
    }

    /// Frees a target that no block was moved to, or loses it.
    fn return_target(&self, to: usize, wanted: usize, is_lost: bool) {
        let _guard = self.lock();
        self.used.store(self.used.load(Relaxed).saturating_sub(wanted), Relaxed);
        if is_lost {
            self.foreign.store(self.foreign.load(Relaxed) + wanted, Relaxed);
        } else {
            self.add_holes(wanted as isize);
            self.mark_free(to, wanted, false);
        }
    }

    /// Makes holes of the chunks that a block has left; the caller holds the lock.
    fn end_move(&self, first: usize, before: usize, to: usize, wanted: usize) {
        self.unmapped_bits().put(to, wanted, false);
        self.add_holes(before as isize);
        self.unmapped_bits().put(first, before, true);
        self.mark_free(first, before, false);
        let used = self.used.load(Relaxed).saturating_sub(before);
        self.set_used(used);
    }
}

#[cfg(all(test, not(thiscpu_model)))]
mod tests {
    use super::*;
    use crate::slab::arena::CHUNK_BYTES;

    const BEFORE: usize = 40;
    const WANTED: usize = 70;

    /// Returns an arena with a block of `BEFORE` chunks at chunk 3, between used chunks.
    fn arena_with_block() -> &'static Arena {
        let arena: &'static Arena = Box::leak(Box::new(Arena::new()));
        assert_eq!(arena.alloc(3 + BEFORE + 1, 1), Some(0));
        (3..3 + BEFORE).for_each(|chunk| word(arena, chunk, Some(chunk as u64)));
        arena
    }

    /// Writes or checks the first word of a chunk.
    fn word(arena: &Arena, chunk: usize, value: Option<u64>) {
        let at = arena.address(chunk) as *mut u64;
        // SAFETY: the callers have allocated these chunks.
        let word = unsafe { &mut *at };
        match value {
            Some(value) => *word = value,
            None => assert_eq!(*word, 0),
        }
    }

    fn assert_content(arena: &Arena, first: usize) {
        for at in 0..BEFORE {
            // SAFETY: the block is at these chunks.
            let value = unsafe { (arena.address(first + at) as *const u64).read() };
            assert_eq!(value, 3 + at as u64, "in chunk {at} of the block");
        }
    }

    /// Moves the block and frees its old chunks; returns its new first chunk.
    fn moved(arena: &Arena) -> Option<usize> {
        arena.move_grown(3, BEFORE, WANTED, |_| ())
    }

    #[test]
    fn moved_block_keeps_its_content_and_has_room() {
        let arena = arena_with_block();
        let used = arena.used.load(Relaxed);
        let to = moved(arena).expect("address space");
        assert_content(arena, to);
        (to + BEFORE..to + WANTED).for_each(|chunk| word(arena, chunk, None));
        assert_eq!((to - 3) % MOVE_ALIGN_CHUNKS, 0, "tables of pages cannot move");
        assert_eq!(arena.used.load(Relaxed), used + WANTED - BEFORE);
        assert!(!Host::is_mapped(arena.address(3), CHUNK_BYTES), "the old address is mapped");
        // The block grows over its room, and remains one mapping: it can move again.
        assert_eq!(arena.grow(to, WANTED, 2 * WANTED), Some(()));
        let aligned = arena.align_up(to + 2 * WANTED, 1 << 12);
        assert_eq!(arena.alloc(1, 1 << 12), aligned);
        let next = arena.move_grown(to, 2 * WANTED, 4 * WANTED, |_| ()).expect("address space");
        assert_content(arena, next);
        // What it has left is used again, and reads as zeros.
        assert_eq!(arena.find_holes(BEFORE), Some(3));
        assert_eq!(arena.alloc_found(BEFORE, 1, || Some(3)), Some(3));
        (3..3 + BEFORE).for_each(|chunk| word(arena, chunk, None));
        let counts = [&arena.used, &arena.dirty, &arena.holes].map(|count| count.load(Relaxed));
        arena.recount();
        let recounted = [&arena.used, &arena.dirty, &arena.holes].map(|count| count.load(Relaxed));
        assert_eq!(counts, recounted);
    }

    #[test]
    fn block_at_the_end_grows_in_place() {
        let arena: &'static Arena = Box::leak(Box::new(Arena::new()));
        let count = 64;
        assert_eq!(arena.alloc(count, 1), Some(0));
        let mut size = count;
        for _ in 0..40 {
            assert_eq!(arena.grow(0, size, size + 37), Some(()));
            size += 37;
            word(arena, size - 1, Some(1));
        }
    }

    #[test]
    fn move_never_replaces_foreign_mappings() {
        let arena = arena_with_block();
        let committed = arena.committed.load(Relaxed);
        let target = committed + (3 + MOVE_ALIGN_CHUNKS - committed % MOVE_ALIGN_CHUNKS) % 32;
        // The last chunk of the target, which is not known to the arena.
        let other = target + WANTED - 1;
        assert_eq!(Host::map_at(arena.address(other), CHUNK_BYTES), Ok(()));
        word(arena, other, Some(7));
        assert_eq!(moved(arena), None, "the mapping was replaced, or is elsewhere");
        assert_content(arena, 3);
        // SAFETY: this test has mapped the chunk.
        assert_eq!(unsafe { (arena.address(other) as *const u64).read() }, 7);
        let to = moved(arena).expect("there is room behind it");
        assert!(to > other);
        assert_content(arena, to);
    }

    #[test]
    fn block_of_two_mappings_stays() {
        let arena = arena_with_block();
        let page = arena.address(20) as *mut libc::c_void;
        // SAFETY: the page is in the block.
        assert_eq!(unsafe { libc::mprotect(page, Host::page_bytes(), libc::PROT_READ) }, 0);
        assert_eq!(moved(arena), None);
        assert_content(arena, 3);
        assert_eq!(arena.used_bits().find(false, 0, 3 + BEFORE), 3 + BEFORE);
        assert_eq!(arena.foreign.load(Relaxed), 0, "a target was lost");
    }

    #[test]
    fn look_at_a_block_leaves_the_hole_behind_it() {
        let arena = arena_with_block();
        let to = moved(arena).expect("address space");
        assert!(arena.is_one_mapping(to, WANTED));
        assert!(!Host::is_mapped(arena.address(to + WANTED), Host::page_bytes()));
    }

    #[test]
    fn chunks_of_a_cache_stay_mapped_when_their_block_grows() {
        let arena = arena_with_block();
        arena.keep(3 + BEFORE - 1, 1);
        assert_eq!(moved(arena), None);
        assert_content(arena, 3);
    }

    /// Covers a fork while pages move: the child may use neither range, and knows that.
    #[test]
    fn child_uses_neither_range_of_its_parents_move() {
        for is_moved in [false, true] {
            let arena = arena_with_block();
            let to = arena.take_target(3, WANTED).expect("address space");
            assert_eq!(Host::reserve_at(arena.address(to), WANTED * CHUNK_BYTES), Ok(()));
            if is_moved {
                let bytes = [BEFORE, WANTED].map(|chunks| chunks * CHUNK_BYTES);
                let [from, to] = [3, to].map(|chunk| arena.address(chunk));
                // SAFETY: both ranges belong to this test.
                assert_eq!(unsafe { Host::remap(from, bytes[0], to, bytes[1]) }, Ok(()));
            }
            let free = arena.mapped_free();
            arena.recount();
            assert_eq!(arena.mapped_free(), free, "the target counts as free and mapped");
            for count in [1, 20, 60, 300] {
                let first = arena.alloc(count, 1).expect("address space");
                (first..first + count).for_each(|chunk| word(arena, chunk, Some(1)));
                let is_apart =
                    |from: usize, len: usize| first + count <= from || from + len <= first;
                assert!(is_apart(0, 3 + BEFORE + 1) && is_apart(to, WANTED));
            }
        }
    }
}

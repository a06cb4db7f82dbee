//! The arena's mappings: the region that it commits as it grows.
//!
//! No address space is reserved, so a limit on address space can be used almost entirely.
//!
//! ```text
//! | max runs | used | dirty | aged | unmapped | kept | slabs | object bits | tags | chunk 0 | ...
//! ```
//!
//! The region is picked at random, where hardly any program has mappings. Each part has a fixed
//! place in it. A part is mapped from its beginning, in steps, and only if nothing else is there
//! (`MAP_FIXED_NOREPLACE`). Chunks in the way of a foreign mapping are skipped: they count as used
//! forever.
//!
//! A fork in the middle of a step leaves the child mappings that it does not know of. It finds
//! chunks in the way and skips them; they were never touched. Metadata cannot be skipped. A flag
//! tells the child that metadata was being mapped, and the child then uses those mappings.

use super::layout::{
    CHUNKS_MAX, CHUNKS_MIN, PAGE_MAX, TAG_CHUNKS, layout, map_all, map_missing, size, to_page,
};
use super::slab::{OBJECT_BITS_BYTES, Slab};
use super::{Arena, CHUNK_BYTES, Tag};
use crate::slab::lane::encoding::auxv_bits;
use crate::sys::Host;
use crate::sys::atomic::Ordering::{Relaxed, Release};
use crate::sys::machine::Machine as _;

/// Number of chunks that have tags from the start. Once there are more, all chunks have tags.
const CHUNKS_TAGGED_FIRST: usize = if cfg!(thiscpu_model) { 64 } else { 1 << 16 };
/// Number of chunks committed at once at least, if there is room.
const COMMIT_CHUNKS: usize = 16;
/// Number of chunks, 1 GiB, within which foreign mappings are skipped for an allocation.
const SKIP_CHUNKS_MAX: usize = (1 << 30) / CHUNK_BYTES;
/// Ranges that the region's address is picked from, as beginning and size.
///
/// The first is between programs' own addresses and those that the kernel picks for mappings. The
/// second is lower, for tools that reserve high addresses.
const REGIONS: [(usize, usize); 2] = [(32 << 40, 32 << 40), (2 << 40, 4 << 40)];
const REGION_ALIGN: usize = 1 << 30;

impl Arena {
    /// Maps the first metadata, if it is not mapped; on failure nothing is.
    pub(super) fn init(&self) -> Option<()> {
        if self.len.load(Relaxed) != 0 {
            return Some(());
        }
        if !cfg!(thiscpu_model) {
            for (from, size) in REGIONS {
                let bits = auxv_bits().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                let start = from + bits as usize * REGION_ALIGN % size;
                if self.init_at(start, CHUNKS_MAX).is_some() {
                    return Some(());
                }
            }
        }
        // The smallest arena first: if a limit leaves no room for it, the others need not be tried.
        Host::find_gap(layout(CHUNKS_MIN).chunks, CHUNK_BYTES).ok()?;
        let halves = core::iter::successors(Some(CHUNKS_MAX), |chunks| Some(chunks / 2));
        halves.take_while(|&chunks| chunks >= CHUNKS_MIN).find_map(|chunks| self.init_with(chunks))
    }

    /// Maps the metadata of an arena of `chunks` chunks, at any address.
    pub(super) fn init_with(&self, chunks: usize) -> Option<()> {
        self.init_at(
            Host::find_gap(layout(chunks).chunks + chunks * CHUNK_BYTES, CHUNK_BYTES).ok()?,
            chunks,
        )
    }

    fn init_at(&self, start: usize, chunks: usize) -> Option<()> {
        let (layout, first) = (layout(chunks), chunks.min(CHUNKS_TAGGED_FIRST));
        map_all(start, &layout.metadata(0, first)).ok()?;
        self.start.store(start, Relaxed);
        self.tags.store(start + layout.tags + TAG_CHUNKS * size_of::<Tag>(), Relaxed);
        self.slabs.store(start + layout.slabs, Relaxed);
        self.object_bits.store(start + layout.object_bits, Relaxed);
        self.base.store(start + layout.chunks, Relaxed);
        self.limit.store(chunks, Relaxed);
        self.has_all_tags.store(layout.map_all_tags(start, first), Relaxed);
        self.publish_len(first);
        Some(())
    }

    /// Publishes that `len` chunks have tags.
    pub(super) fn publish_len(&self, len: usize) {
        // Release: pairs with the Acquire in `chunk_of`, which then finds `base` and `tags`.
        self.len.store(len, Release);
        // A child repeats this, because the fork may have come between the two stores.
        self.publish_origin();
    }

    /// Commits chunks for an allocation at the end; returns the first, or uncommits on failure.
    pub(super) fn find_at_end(&self, count: usize, align: usize) -> Option<usize> {
        let mut gap = COMMIT_CHUNKS;
        loop {
            let high = self.high.load(Relaxed);
            let tail = self.used_bits().after_last(0, high);
            let first = self.align_up(tail, align)?;
            let end = first.checked_add(count)?;
            match self.commit_to(end) {
                Ok(()) => {
                    self.raise_max_run(tail, end);
                    // Release: pairs with the Acquire in `slab`, so that a chunk below `high` is
                    // committed.
                    self.high.store(high.max(end), Release);
                    return Some(first);
                }
                Err(libc::EEXIST) => self.skip_foreign(end, count, gap)?,
                Err(_) => return None,
            }
            gap *= 2;
        }
    }

    /// Commits chunks up to a foreign mapping before `end`, and skips `gap` chunks there.
    ///
    /// Then `count` chunks may fit behind it. On failure nothing changes.
    fn skip_foreign(&self, end: usize, count: usize, gap: usize) -> Option<()> {
        let before = self.commit_state();
        let skipped = || {
            let reach = end.min(before[0] + SKIP_CHUNKS_MAX);
            self.commit_until_foreign(reach).ok()?;
            if reach < end && self.committed.load(Relaxed) == reach {
                return None;
            }
            // If a limit leaves too little for the allocation, nothing committed for it is kept.
            Host::find_gap(count * CHUNK_BYTES, CHUNK_BYTES).ok()?;
            self.mark_foreign(gap)
        };
        skipped().or_else(|| {
            self.uncommit_to(before);
            None
        })
    }

    /// Commits chunks up to `end`, and some more if there is room.
    pub(super) fn commit_to(&self, end: usize) -> Result<(), i32> {
        let committed = self.committed.load(Relaxed);
        if end <= committed {
            return Ok(());
        }
        self.map_metadata(end)?;
        let wanted = end
            .max(committed + committed / 16)
            .next_multiple_of(COMMIT_CHUNKS)
            .min(self.len.load(Relaxed));
        self.commit_exactly(wanted, true).or_else(|_| self.commit_exactly(end, true))?;
        self.look_for_limit(committed);
        Ok(())
    }

    /// Maps metadata for all chunks, if that of `end` chunks is not mapped.
    pub(super) fn map_metadata(&self, end: usize) -> Result<(), i32> {
        let (len, limit) = (self.len.load(Relaxed), self.limit.load(Relaxed));
        if end > limit {
            return Err(libc::ENOMEM);
        }
        if end > len {
            let (start, mut parts) = (self.start.load(Relaxed), layout(limit).metadata(len, limit));
            let [.., tags] = &mut parts;
            let has_all_tags = self.has_all_tags.load(Relaxed);
            let readable = if has_all_tags { core::mem::take(tags) } else { (0, 0) };
            let mapped = if self.mapping_metadata.load(Relaxed) {
                map_missing(start, &parts)
            } else {
                // Stored first, for a child forked from here on. It is cleared only if nothing was
                // mapped.
                self.mapping_metadata.store(true, Relaxed);
                map_all(start, &parts).inspect_err(|_| self.mapping_metadata.store(false, Relaxed))
            };
            // A foreign mapping cannot be skipped here, because metadata has a fixed place.
            mapped.map_err(|_| libc::ENOMEM)?;
            // Last: if this fails, the other parts are found mapped next time, and the tags have
            // not become writable for nothing.
            if has_all_tags && Host::commit(start + readable.0, size(&readable)).is_err() {
                return Err(libc::ENOMEM);
            }
            if limit == CHUNKS_MAX {
                self.has_all_tags.store(true, Relaxed);
            }
            self.publish_len(limit);
        }
        Ok(())
    }

    /// Commits chunks up to `end`, or else leaves them as holes.
    pub(super) fn commit_exactly(&self, end: usize, are_mapped: bool) -> Result<(), i32> {
        let layout = layout(self.limit.load(Relaxed));
        let before = self.commit_state();
        let [chunks, slabs, object_bits] = self.commit_starts(before);
        // Only new pages: the program may have protected the pages before them.
        let part = |from: usize, to: usize| (from, to_page(to).max(from));
        let slabs = part(slabs, layout.slabs + end * size_of::<Slab>());
        let object_bits = part(object_bits, layout.object_bits + end * OBJECT_BITS_BYTES);
        let chunks_end = if are_mapped { layout.chunks + end * CHUNK_BYTES } else { chunks };
        map_all(self.start.load(Relaxed), &[slabs, object_bits, (chunks, chunks_end)])?;
        // Before the end is stored, so that a child forked in between takes no hole for mapped. The
        // marks of a parent that was forked there are replaced.
        let (first, count) = (before[0], end - before[0]);
        if are_mapped {
            self.unmapped_bits().put(first, count, false);
        } else {
            self.add_holes(count as isize);
            self.unmapped_bits().put(first, count, true);
        }
        self.set_commit_state([end, slabs.1, object_bits.1]);
        Ok(())
    }

    /// Returns the number of committed chunks, and the ends of their slabs and object bits.
    fn commit_state(&self) -> [usize; 3] {
        [&self.committed, &self.slabs_committed, &self.object_bits_committed]
            .map(|word| word.load(Relaxed))
    }

    fn set_commit_state(&self, [chunks, slabs, object_bits]: [usize; 3]) {
        self.slabs_committed.store(slabs, Relaxed);
        self.object_bits_committed.store(object_bits, Relaxed);
        self.committed.store(chunks, Relaxed);
    }

    /// Returns where the next mapping of each of the three parts begins.
    fn commit_starts(&self, [committed, slabs, object_bits]: [usize; 3]) -> [usize; 3] {
        let layout = layout(self.limit.load(Relaxed));
        // The first slab may share its page with the last committed one, or with a skipped one.
        let page = |at: usize| at / PAGE_MAX * PAGE_MAX;
        [
            layout.chunks + committed * CHUNK_BYTES,
            slabs.max(page(layout.slabs + committed * size_of::<Slab>())),
            object_bits.max(page(layout.object_bits + committed * OBJECT_BITS_BYTES)),
        ]
    }

    /// Commits chunks up to a foreign mapping or to `end`; fails on any other error.
    fn commit_until_foreign(&self, end: usize) -> Result<(), i32> {
        let mut step = (end - self.committed.load(Relaxed)).next_power_of_two();
        while step > 0 {
            match self.commit_exactly(end.min(self.committed.load(Relaxed) + step), true) {
                // Tried again with fewer chunks.
                Ok(()) | Err(libc::EEXIST) => step /= 2,
                error => return error,
            }
        }
        Ok(())
    }

    /// Unmaps chunks committed since `before`. They were never used: `high` is below them.
    fn uncommit_to(&self, before: [usize; 3]) {
        let (start, layout) = (self.start.load(Relaxed), layout(self.limit.load(Relaxed)));
        let [committed, slabs, object_bits] = self.commit_state();
        let ends = [layout.chunks + committed * CHUNK_BYTES, slabs, object_bits];
        // Stored first: if a fork comes after this, the child finds the mappings in its way, and
        // skips them.
        self.set_commit_state(before);
        for (from, to) in
            self.commit_starts(before).into_iter().zip(ends).filter(|part| part.0 < part.1)
        {
            // SAFETY: these parts were mapped since `before`, each from where the last one ended.
            // No chunk in them was ever used.
            unsafe { Host::unmap(start + from, to - from) };
        }
    }

    /// Skips `count` uncommitted chunks, because a foreign mapping is in their way.
    fn mark_foreign(&self, count: usize) -> Option<()> {
        let committed = self.committed.load(Relaxed);
        let end = committed + count;
        self.map_metadata(end).ok()?;
        let used = self.used_bits();
        let tail = used.after_last(0, self.high.load(Relaxed));
        self.raise_max_run(tail, committed);
        // Marked first, so that a child forked after this never allocates them, even if they are
        // committed.
        let skipped = used.put(committed, count, true);
        self.foreign.store(self.foreign.load(Relaxed) + skipped, Relaxed);
        // Stored before `committed`. A child forked in between finds the same mapping in its way,
        // and skips again. In the other order it would take skipped chunks for committed and free.
        // It may have fewer to skip, since `high` stays.
        self.high.store(self.high.load(Relaxed).max(end), Release);
        self.committed.store(end, Relaxed);
        Some(())
    }

    /// Returns the first chunk from `chunk` on whose address is a multiple of `align` chunks.
    pub(super) fn align_up(&self, chunk: usize, align: usize) -> Option<usize> {
        let before = self.base.load(Relaxed) / CHUNK_BYTES;
        Some((before + chunk).checked_next_multiple_of(align)? - before)
    }
}

#[cfg(all(test, not(thiscpu_model)))]
mod tests {
    use super::*;
    use crate::slab::arena::layout::METADATA_PARTS;

    /// The index of the tags' part of the metadata.
    const TAGS: usize = METADATA_PARTS - 1;

    /// Returns an arena with its first metadata mapped, and the parts of the rest.
    fn initialized() -> (&'static Arena, [(usize, usize); METADATA_PARTS]) {
        // Another test may map something where there was room for all chunks.
        let initialize = |_| {
            let arena: &'static Arena = Box::leak(Box::new(Arena::new()));
            arena.init().expect("there is memory");
            (arena.limit.load(Relaxed) == CHUNKS_MAX).then_some(arena)
        };
        let arena = (0..10).find_map(initialize).expect("there is room for all chunks");
        let (len, limit) = (arena.len.load(Relaxed), arena.limit.load(Relaxed));
        assert!(len < limit);
        (arena, layout(limit).metadata(len, limit))
    }

    fn initialized_without_readable_tags() -> (&'static Arena, [(usize, usize); METADATA_PARTS]) {
        let (arena, parts) = initialized();
        assert!(arena.has_all_tags.swap(false, Relaxed), "there is address space");
        // SAFETY: `init` mapped this part, and no thread uses the fast paths of this arena.
        unsafe { Host::unmap(arena.start.load(Relaxed) + parts[TAGS].0, size(&parts[TAGS])) };
        (arena, parts)
    }

    fn map(arena: &Arena, part: (usize, usize)) {
        Host::map_at(arena.start.load(Relaxed) + part.0, size(&part)).expect("the range is free");
    }

    #[test]
    fn child_maps_all_metadata_left_unmapped_by_parent() {
        for mapped in 0..=METADATA_PARTS {
            let (arena, parts) = initialized_without_readable_tags();
            assert_child_maps_all(arena, &parts, mapped);
        }
    }

    #[test]
    fn child_maps_all_metadata_when_tags_were_readable() {
        for (mapped, are_committed) in
            (0..=TAGS).map(|mapped| (mapped, false)).chain([(TAGS, true)])
        {
            let (arena, parts) = initialized();
            if are_committed {
                let start = arena.start.load(Relaxed) + parts[TAGS].0;
                assert_eq!(Host::commit(start, size(&parts[TAGS])), Ok(()));
            }
            assert_child_maps_all(arena, &parts, mapped);
        }
    }

    /// Checks a child whose parent had mapped the first `mapped` parts at the fork.
    fn assert_child_maps_all(arena: &Arena, parts: &[(usize, usize)], mapped: usize) {
        arena.mapping_metadata.store(true, Relaxed);
        parts[..mapped].iter().filter(|part| size(part) > 0).for_each(|&part| map(arena, part));
        let last = arena.limit.load(Relaxed);
        assert_eq!(arena.map_metadata(last), Ok(()), "after {mapped} parts");
        assert!(arena.has_all_tags.load(Relaxed));
        arena.set_tag(last - 1, 5, 16);
        assert_eq!(arena.tag(last - 1), 5);
    }

    /// Covers a parent that had mapped all parts and had just not published them.
    #[test]
    fn child_publishes_len_when_parent_had_mapped_all() {
        let (arena, _) = initialized();
        let (len, last) = (arena.len.load(Relaxed), arena.limit.load(Relaxed));
        assert_eq!(arena.map_metadata(last), Ok(()));
        arena.publish_len(len);
        assert_eq!(arena.map_metadata(last), Ok(()));
        assert_eq!(arena.len.load(Relaxed), last);
    }

    #[test]
    fn child_skips_foreign_mapping_again() {
        for is_high_stored in [false, true] {
            let (arena, _) = initialized();
            assert_eq!(arena.find_at_end(10, 1), Some(0));
            arena.used_bits().put(0, 10, true);
            let (committed, high) = (arena.committed.load(Relaxed), arena.high.load(Relaxed));
            let chunks = layout(arena.limit.load(Relaxed)).chunks;
            map(arena, (chunks + committed * CHUNK_BYTES, chunks + (committed + 1) * CHUNK_BYTES));
            arena.mark_foreign(4 * COMMIT_CHUNKS).expect("there are tags");
            let skipped = arena.high.load(Relaxed);
            arena.committed.store(committed, Relaxed);
            if !is_high_stored {
                arena.high.store(high, Relaxed);
            }
            let first = arena.find_at_end(100, 1).expect("there is address space");
            assert!(first > committed, "the foreign chunk {committed} is in 100 from {first} on");
            assert!(!is_high_stored || first >= skipped, "a skipped chunk was allocated");
        }
    }

    #[test]
    fn metadata_never_uses_foreign_mappings() {
        for (is_child, part) in [(false, 1), (true, 1), (false, TAGS), (true, TAGS)] {
            let (arena, parts) = initialized_without_readable_tags();
            arena.mapping_metadata.store(is_child, Relaxed);
            let from = parts[part].0;
            map(arena, (from + PAGE_MAX, from + 2 * PAGE_MAX));
            let len = arena.len.load(Relaxed);
            assert_eq!(arena.map_metadata(len + 1), Err(libc::ENOMEM));
            assert_eq!(arena.len.load(Relaxed), len);
        }
    }
}

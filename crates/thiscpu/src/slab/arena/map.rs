//! What of the arena is mapped: nothing is reserved where a limit might want it, so a limit on address arena can be used nearly whole.
//!
//! ```text
//! | longest runs | used | dirty | slab of each chunk | its objects' bits | tag of each chunk | chunk 0 | chunk 1 | ... |
//! ```
//!
//! Each part has its place from the first use on, in a region that is picked at random where hardly a program has anything, and is mapped from
//! its beginning, in steps, at that place and only if nothing else is there (`MAP_FIXED_NOREPLACE`). Where something is, the
//! chunks in its way count as used for ever.
//!
//! A fork amid a step leaves mappings to the child that it knows nothing of: it finds chunks in the way, and passes
//! by; they were never touched. Arrays cannot be passed by: the child finds it written down that they were being mapped, and uses them.

use super::slab::{OBJECT_BITS_BYTES, Slab};
use super::{Arena, CHUNK_BYTES, SUMMARY_CHUNKS, Tag};
use crate::slab::lane::encoding::auxv_bits;
use crate::sys::Host;
use crate::sys::atomic::Ordering::{Relaxed, Release};
use crate::sys::machine::Machine as _;

/// How many chunks there can be.
pub(super) const CHUNKS_MAX: usize = if cfg!(thiscpu_model) { 64 } else { 1 << 24 };
const CHUNKS_MIN: usize = if cfg!(thiscpu_model) { 64 } else { 1 << 8 };
/// So many chunks have tags from the beginning, and all once there are more.
const CHUNKS_TAGGED_FIRST: usize = if cfg!(thiscpu_model) { 64 } else { 1 << 16 };
/// Where there is room for so many chunks, 64 GiB of them, tags are as far in front of chunk 0 as if it was for all there can be.
const CHUNKS_ROOMY: usize = if cfg!(thiscpu_model) { 64 } else { 1 << 20 };
/// So much address arena has to be had for 64 MiB of it to be mapped for the tags of chunks that are not there yet.
const TAGS_ROOM_BYTES: usize = 4 << 30;
/// At least so many chunks become accessible at once, if there is room.
const STEP: usize = 16;
/// What is in the way of a call further away than so many, a GiB, is not passed by.
const SKIP_CHUNKS_MAX: usize = (1 << 30) / CHUNK_BYTES;
/// The largest page of these machines.
const PAGE_MAX: usize = if cfg!(thiscpu_model) { 4096 } else { 64 * 1024 };

/// Where the region is, preferably. Between programs' own addresses and where the kernel maps what has no place; and, for tools that
/// keep high addresses to themselves, lower. Each with the size of what it is picked from.
const REGIONS: [(usize, usize); 2] = [(32 << 40, 32 << 40), (2 << 40, 4 << 40)];
/// What the region is aligned to there.
const REGION_ALIGN: usize = 1 << 30;

/// Where the parts of a region for so many chunks are, from its beginning, which is that of the longest runs.
pub(super) struct Layout {
    pub(super) used: usize,
    pub(super) dirty: usize,
    tags: usize,
    slabs: usize,
    object_bits: usize,
    chunks: usize,
}

pub(super) const fn layout(chunks: usize) -> Layout {
    let bits = to_page(chunks / 8);
    let used = to_page(chunks.div_ceil(SUMMARY_CHUNKS) * size_of::<u32>());
    let slabs = used + 2 * bits;
    let object_bits = slabs + to_page(chunks * size_of::<Slab>());
    let tags = object_bits + to_page(chunks * OBJECT_BITS_BYTES);
    Layout {
        used,
        dirty: used + bits,
        tags,
        slabs,
        object_bits,
        chunks: tags + if chunks >= CHUNKS_ROOMY { TAGS_BYTES } else { tags_bytes(chunks) },
    }
}

impl Layout {
    /// What has to be mapped for so many chunks to have tags, where so many have: beginnings and ends.
    const fn metadata(&self, from: usize, to: usize) -> [(usize, usize); 4] {
        let longest = if from == 0 { (0, self.used) } else { (0, 0) };
        let bits = (to_page(from / 8), to_page(to / 8));
        let tags = (if from == 0 { 0 } else { tags_bytes(from) }, tags_bytes(to));
        [
            longest,
            (self.used + bits.0, self.used + bits.1),
            (self.dirty + bits.0, self.dirty + bits.1),
            (self.tags + tags.0, self.tags + tags.1),
        ]
    }

    /// Has zeros for the tags of all chunks there can be, where so many have some, so that fast paths may ask for any. Whether they may: not where address arena
    /// is scarce, because what is mapped for that is gone for other things.
    fn map_all_tags(&self, start: usize, from: usize) -> bool {
        let missing = (self.tags + tags_bytes(from), self.tags + TAGS_BYTES);
        if self.chunks < missing.1 {
            return false;
        }
        let map = || Host::map_zeros_at(start + missing.0, size(&missing));
        size(&missing) == 0
            || (Host::find_gap(TAGS_ROOM_BYTES, CHUNK_BYTES).is_ok() && map().is_ok())
    }
}

/// What is in front of chunk 0 is counted in chunks too: tags begin with zeros for as many as the tags themselves fill. So where a tag is and what it is about
/// are found from the same address, and instructions need no displacement.
pub(super) const TAG_CHUNKS: usize = CHUNKS_MAX * size_of::<Tag>() / CHUNK_BYTES + 1;
/// From the tags to chunk 0, unless there is room for a few chunks only.
const TAGS_BYTES: usize = TAG_CHUNKS * CHUNK_BYTES;
const _: () = assert!(tags_bytes(CHUNKS_MAX) <= TAGS_BYTES && TAGS_BYTES.is_multiple_of(PAGE_MAX));

/// How far the tags of so many chunks go.
const fn tags_bytes(chunks: usize) -> usize {
    to_page((TAG_CHUNKS + chunks) * size_of::<Tag>())
}

const fn to_page(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE_MAX)
}

fn size(part: &(usize, usize)) -> usize {
    part.1 - part.0
}

/// Maps all of it, or nothing.
fn map_all(start: usize, parts: &[(usize, usize)]) -> Result<(), i32> {
    for (done, part) in parts.iter().enumerate() {
        if size(part) == 0 {
            continue;
        }
        if let Err(error) = Host::map_at(start + part.0, size(part)) {
            for part in parts[..done].iter().filter(|part| size(part) > 0) {
                // SAFETY: just mapped, and nobody's.
                unsafe { Host::unmap(start + part.0, size(part)) };
            }
            return Err(error);
        }
    }
    Ok(())
}

/// Maps what is not mapped of parts of which some may be: a thread that is not in this process was mapping them.
fn map_missing(start: usize, parts: &[(usize, usize)]) -> Result<(), i32> {
    for part in parts.iter().filter(|part| size(part) > 0) {
        match Host::map_at(start + part.0, size(part)) {
            Err(libc::EEXIST) if Host::is_mapped(start + part.0, size(part)) => {}
            mapped => mapped?,
        }
    }
    Ok(())
}

impl Arena {
    /// Has the first parts mapped, if that has not been done. `None` if that cannot be, and then nothing is.
    pub(super) fn init(&self) -> Option<()> {
        if self.len.load(Relaxed) != 0 {
            return Some(());
        }
        if !cfg!(thiscpu_model) {
            for (from, size) in REGIONS {
                let place = auxv_bits().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                let start = from + place as usize * REGION_ALIGN % size;
                if self.init_at(start, CHUNKS_MAX).is_some() {
                    return Some(());
                }
            }
        }
        // The least first: where there is not even that much, as a limit may have it, the others need not be tried.
        Host::find_gap(layout(CHUNKS_MIN).chunks, CHUNK_BYTES).ok()?;
        let halves = core::iter::successors(Some(CHUNKS_MAX), |chunks| Some(chunks / 2));
        halves.take_while(|&chunks| chunks >= CHUNKS_MIN).find_map(|chunks| self.init_with(chunks))
    }

    /// The same for so many chunks, anywhere.
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

    /// So many chunks have tags.
    pub(super) fn publish_len(&self, len: usize) {
        // Release: what an address is, is asked of a chunk below this.
        self.len.store(len, Release);
        // In a child too: the fork may have come between the two stores.
        self.publish_origin();
    }

    /// Makes chunks at the end accessible, for `count` that follow each other and begin at a multiple of `align`. The first. Where
    /// that cannot be, what was made accessible on the way is unmapped.
    pub(super) fn find_at_end(&self, count: usize, align: usize) -> Option<usize> {
        let mut gap = STEP;
        loop {
            let high = self.high.load(Relaxed);
            let tail = self.used_bits().after_last(0, high);
            let first = self.align_up(tail, align)?;
            let end = first.checked_add(count)?;
            match self.commit_to(end) {
                Ok(()) => {
                    self.raise_max_run(tail, end);
                    // Release: pairs with the Acquire in `slab`; it is accessible.
                    self.high.store(high.max(end), Release);
                    return Some(first);
                }
                Err(libc::EEXIST) => self.skip_foreign(end, count, gap)?,
                Err(_) => return None,
            }
            gap *= 2;
        }
    }

    /// Makes accessible what is before something else that is mapped before `end`, and passes by that, so that `count` may be
    /// behind it; or changes nothing.
    fn skip_foreign(&self, end: usize, count: usize, gap: usize) -> Option<()> {
        let before = self.commit_state();
        let passed = || {
            let near = end.min(before[0] + SKIP_CHUNKS_MAX);
            self.commit_until_foreign(near).ok()?;
            if near < end && self.committed.load(Relaxed) == near {
                return None;
            }
            // Where a limit leaves too little for what is wanted, what was opened for it is not kept.
            Host::find_gap(count * CHUNK_BYTES, CHUNK_BYTES).ok()?;
            self.mark_foreign(gap)
        };
        passed().or_else(|| {
            self.uncommit_to(before);
            None
        })
    }

    /// Makes chunks from the last used one on accessible.
    pub(super) fn commit_to(&self, end: usize) -> Result<(), i32> {
        let committed = self.committed.load(Relaxed);
        if end <= committed {
            return Ok(());
        }
        self.map_metadata(end)?;
        let wanted =
            end.max(committed + committed / 16).next_multiple_of(STEP).min(self.len.load(Relaxed));
        self.commit_exactly(wanted).or_else(|_| self.commit_exactly(end))
    }

    /// Has tags for all chunks if it has not for so many.
    fn map_metadata(&self, end: usize) -> Result<(), i32> {
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
                // First: it is for a child that is forked from here on, until there are tags for all or nothing is mapped.
                self.mapping_metadata.store(true, Relaxed);
                map_all(start, &parts).inspect_err(|_| self.mapping_metadata.store(false, Relaxed))
            };
            // What is in the way here cannot be passed by: it would have to be an array's.
            mapped.map_err(|_| libc::ENOMEM)?;
            // Last: if they cannot be had the others are found mapped the next time, and these have not become data for nothing.
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

    fn commit_exactly(&self, end: usize) -> Result<(), i32> {
        let layout = layout(self.limit.load(Relaxed));
        let before = self.commit_state();
        let [chunks, slabs, object_bits] = self.commit_starts(before);
        // Only what is new: a program may have protected pages of its own before it.
        let part = |from: usize, to: usize| (from, to_page(to).max(from));
        let slabs = part(slabs, layout.slabs + end * size_of::<Slab>());
        let object_bits = part(object_bits, layout.object_bits + end * OBJECT_BITS_BYTES);
        map_all(
            self.start.load(Relaxed),
            &[slabs, object_bits, (chunks, layout.chunks + end * CHUNK_BYTES)],
        )?;
        self.set_commit_state([end, slabs.1, object_bits.1]);
        Ok(())
    }

    /// How many chunks are accessible, and how far what is known of them.
    fn commit_state(&self) -> [usize; 3] {
        [&self.committed, &self.slabs_committed, &self.object_bits_committed]
            .map(|word| word.load(Relaxed))
    }

    fn set_commit_state(&self, [chunks, slabs, object_bits]: [usize; 3]) {
        self.slabs_committed.store(slabs, Relaxed);
        self.object_bits_committed.store(object_bits, Relaxed);
        self.committed.store(chunks, Relaxed);
    }

    /// Where what is mapped next begins, of each of the three, where so much is accessible.
    fn commit_starts(&self, [committed, slabs, object_bits]: [usize; 3]) -> [usize; 3] {
        let layout = layout(self.limit.load(Relaxed));
        // The page of the first is that of the last one before, or that was passed by.
        let page = |at: usize| at / PAGE_MAX * PAGE_MAX;
        [
            layout.chunks + committed * CHUNK_BYTES,
            slabs.max(page(layout.slabs + committed * size_of::<Slab>())),
            object_bits.max(page(layout.object_bits + committed * OBJECT_BITS_BYTES)),
        ]
    }

    /// Makes chunks accessible up to where something is in the way, about. Another error than that is one.
    fn commit_until_foreign(&self, end: usize) -> Result<(), i32> {
        let mut step = (end - self.committed.load(Relaxed)).next_power_of_two();
        while step > 0 {
            match self.commit_exactly(end.min(self.committed.load(Relaxed) + step)) {
                // It is tried with less.
                Ok(()) | Err(libc::EEXIST) => step /= 2,
                error => return error,
            }
        }
        Ok(())
    }

    /// Unmaps what became accessible since so much was, and nobody has: it is behind all that was ever used.
    fn uncommit_to(&self, before: [usize; 3]) {
        let (start, layout) = (self.start.load(Relaxed), layout(self.limit.load(Relaxed)));
        let [committed, slabs, object_bits] = self.commit_state();
        let ends = [layout.chunks + committed * CHUNK_BYTES, slabs, object_bits];
        // First: what a fork after this leaves mapped is in the child's way, and is passed by.
        self.set_commit_state(before);
        for (from, to) in
            self.commit_starts(before).into_iter().zip(ends).filter(|part| part.0 < part.1)
        {
            // SAFETY: mapped since then, each time from where that ended; and nobody's.
            unsafe { Host::unmap(start + from, to - from) };
        }
    }

    /// Passes by so many chunks that are not accessible, because something else is mapped there.
    fn mark_foreign(&self, count: usize) -> Option<()> {
        let committed = self.committed.load(Relaxed);
        let end = committed + count;
        self.map_metadata(end).ok()?;
        let used = self.used_bits();
        let tail = used.after_last(0, self.high.load(Relaxed));
        self.raise_max_run(tail, committed);
        // First: what a fork after this leaves committed is never handed out.
        let missing = used.put(committed, count, true);
        self.foreign.store(self.foreign.load(Relaxed) + missing, Relaxed);
        // Before `committed`: a child that is forked in between finds the same in its way again, and passes by. The other way round it
        // would take what is passed by for accessible and unused. It may have less to pass by then: `high` stays.
        self.high.store(self.high.load(Relaxed).max(end), Release);
        self.committed.store(end, Relaxed);
        Some(())
    }

    /// The first chunk from one on whose address is a multiple of so many chunks.
    pub(super) fn align_up(&self, chunk: usize, align: usize) -> Option<usize> {
        let before = self.base.load(Relaxed) / CHUNK_BYTES;
        Some((before + chunk).checked_next_multiple_of(align)? - before)
    }
}

#[cfg(all(test, not(thiscpu_model)))]
mod tests {
    use super::*;

    /// A arena that knows of the first chunks, and the arrays for all.
    fn begun() -> (&'static Arena, [(usize, usize); 4]) {
        // A mapping of another test may come in between, where there was room for all chunks.
        let begin = |_| {
            let arena: &'static Arena = Box::leak(Box::new(Arena::new()));
            arena.init().expect("there is memory");
            (arena.limit.load(Relaxed) == CHUNKS_MAX).then_some(arena)
        };
        let arena = (0..10).find_map(begin).expect("there is room for all chunks");
        let (len, limit) = (arena.len.load(Relaxed), arena.limit.load(Relaxed));
        assert!(len < limit);
        (arena, layout(limit).metadata(len, limit))
    }

    /// The same without tags for chunks that are not there.
    fn begun_where_room_is_scarce() -> (&'static Arena, [(usize, usize); 4]) {
        let (arena, parts) = begun();
        assert!(arena.has_all_tags.swap(false, Relaxed), "there is address arena");
        // SAFETY: mapped by this arena, whose fast paths nobody uses.
        unsafe { Host::unmap(arena.start.load(Relaxed) + parts[3].0, size(&parts[3])) };
        (arena, parts)
    }

    fn map(arena: &Arena, part: (usize, usize)) {
        Host::map_at(arena.start.load(Relaxed) + part.0, size(&part)).expect("nothing is there");
    }

    /// Whatever of them its parent had mapped at the fork.
    #[test]
    fn a_child_has_tags_for_all_units() {
        for mapped in 0..=4 {
            let (arena, parts) = begun_where_room_is_scarce();
            arena.mapping_metadata.store(true, Relaxed);
            parts[..mapped].iter().filter(|part| size(part) > 0).for_each(|&part| map(arena, part));
            has_tags_for_all_units(arena, mapped);
        }
    }

    /// Also where tags could be read before.
    #[test]
    fn a_child_has_tags_for_all_units_that_could_be_read() {
        for (mapped, are_opened) in [(0, false), (1, false), (2, false), (3, false), (3, true)] {
            let (arena, parts) = begun();
            arena.mapping_metadata.store(true, Relaxed);
            if are_opened {
                let start = arena.start.load(Relaxed) + parts[3].0;
                assert_eq!(Host::commit(start, size(&parts[3])), Ok(()));
            }
            parts[..mapped].iter().filter(|part| size(part) > 0).for_each(|&part| map(arena, part));
            has_tags_for_all_units(arena, mapped);
        }
    }

    fn has_tags_for_all_units(arena: &Arena, mapped: usize) {
        let last = arena.limit.load(Relaxed);
        assert_eq!(arena.map_metadata(last), Ok(()), "after {mapped} of the arrays");
        assert!(arena.has_all_tags.load(Relaxed));
        arena.set_tag(last - 1, 5);
        assert_eq!(arena.tag(last - 1), 5);
    }

    /// Also when its parent had mapped them all, and just not said so.
    #[test]
    fn a_child_has_tags_for_all_units_at_the_last_moment() {
        let (arena, _) = begun();
        let (len, last) = (arena.len.load(Relaxed), arena.limit.load(Relaxed));
        assert_eq!(arena.map_metadata(last), Ok(()));
        arena.publish_len(len);
        assert_eq!(arena.map_metadata(last), Ok(()));
        assert_eq!(arena.len.load(Relaxed), last);
    }

    /// A child forked amid passing by finds the same in its way, however much of that was written down.
    #[test]
    fn a_child_passes_by_again() {
        for is_high_stored in [false, true] {
            let (arena, _) = begun();
            assert_eq!(arena.find_at_end(10, 1), Some(0));
            arena.used_bits().put(0, 10, true);
            let (committed, high) = (arena.committed.load(Relaxed), arena.high.load(Relaxed));
            let chunks = layout(arena.limit.load(Relaxed)).chunks;
            map(arena, (chunks + committed * CHUNK_BYTES, chunks + (committed + 1) * CHUNK_BYTES));
            arena.mark_foreign(4 * STEP).expect("there are tags");
            let passed = arena.high.load(Relaxed);
            arena.committed.store(committed, Relaxed);
            if !is_high_stored {
                arena.high.store(high, Relaxed);
            }
            let first = arena.find_at_end(100, 1).expect("there is address arena");
            assert!(
                first > committed,
                "what others have, at {committed}, is in 100 from {first} on"
            );
            assert!(!is_high_stored || first >= passed, "what was passed by is used");
        }
    }

    /// What others have mapped where an array belongs stays theirs.
    #[test]
    fn arrays_are_not_made_of_what_others_have() {
        for (is_child, part) in [(false, 1), (true, 1), (false, 3), (true, 3)] {
            let (arena, parts) = begun_where_room_is_scarce();
            arena.mapping_metadata.store(is_child, Relaxed);
            let from = parts[part].0;
            map(arena, (from + PAGE_MAX, from + 2 * PAGE_MAX));
            let len = arena.len.load(Relaxed);
            assert_eq!(arena.map_metadata(len + 1), Err(libc::ENOMEM));
            assert_eq!(arena.len.load(Relaxed), len);
        }
    }
}

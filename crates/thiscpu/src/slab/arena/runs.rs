//! First-fit search for runs of free chunks, and for extents.
//!
//! Chunks are summarized in groups of 1,024. The `max_run` of a group says that no free run that
//! begins in it is longer. A run that goes on in the next group counts as [`CONTINUES`]. So its
//! length need not be updated in the group where it begins when chunks behind it are freed. That
//! group may be far away, if much was freed.
//!
//! A search skips groups whose `max_run` is too low. Where it finds nothing, it lowers `max_run` to
//! the longest run that it has seen. A thread that frees chunks first raises the `max_run` of the
//! group where their run will begin. So `max_run` is never too low, with one exception. A fork may
//! cut the allocation of a long run in two, and then it is too low until a chunk beside that run is
//! freed. A `max_run` that is too high costs one search of the group.

use super::{Arena, SUMMARY_CHUNKS};
use crate::sys::atomic::{
    AtomicU32,
    Ordering::{Relaxed, Release},
};
use crate::sys::bits::Bits;

/// Number of chunks of an extent, 1 MiB, which begins at a multiple of as many.
const EXTENT_CHUNKS: usize = 16;
/// The `max_run` of a group in which a free run begins that ends in a later group.
const CONTINUES: u32 = u32::MAX;

/// The chunks that a search finds.
#[derive(Clone, Copy)]
enum Wanted {
    /// Free ones.
    Free(Bits<'static>),
    /// Free ones that are mapped: `[used, unmapped]`.
    Mapped([Bits<'static>; 2]),
    /// Holes: `[used, unmapped]`.
    Holes([Bits<'static>; 2]),
}

impl Wanted {
    /// Returns the first chunk in `at..end` that is wanted, or that is not, or `end`.
    fn find(self, is_wanted: bool, at: usize, end: usize) -> usize {
        match self {
            Wanted::Free(used) => used.find(!is_wanted, at, end),
            Wanted::Mapped([used, unmapped]) => used.find_either(unmapped, !is_wanted, at, end),
            Wanted::Holes([used, unmapped]) => unmapped.find_without(used, is_wanted, at, end),
        }
    }
}

/// Returns the end of the group that a chunk is in.
fn summary_end(chunk: usize) -> usize {
    (chunk / SUMMARY_CHUNKS + 1) * SUMMARY_CHUNKS
}

/// Returns the length of a free run, as it counts in the group in which it begins.
fn run_in_summary(first: usize, end: usize) -> u32 {
    if end > summary_end(first) { CONTINUES } else { (end - first) as u32 }
}

impl Arena {
    fn max_run(&self, summary: usize) -> &'static AtomicU32 {
        assert!(summary * SUMMARY_CHUNKS < self.len.load(Relaxed));
        let max_runs = self.start.load(Relaxed) as *const AtomicU32;
        // SAFETY: the region begins with a word for each group below `len`, mapped forever. Zeros
        // are valid.
        unsafe { &*max_runs.add(summary) }
    }

    /// Finds the first `count` free chunks at a multiple of `align`.
    pub(super) fn find_any(&self, count: usize, align: usize) -> Option<usize> {
        self.find(count, align).or_else(|| self.find_at_end(count, align))
    }

    /// Finds chunks for the first slab of a new extent.
    ///
    /// Prefers free chunks that have pages, then an extent that is all free, then any free chunks.
    pub(super) fn find_extent(&self, count: usize) -> Option<usize> {
        self.find_dirty(count)
            .or_else(|| self.find(EXTENT_CHUNKS, EXTENT_CHUNKS))
            .or_else(|| self.find_at_end(count, EXTENT_CHUNKS))
            .or_else(|| self.find_any(count, 1))
    }

    /// Finds the first free chunk that has pages, if `count` chunks are free there.
    fn find_dirty(&self, count: usize) -> Option<usize> {
        if self.dirty.load(Relaxed) == 0 {
            return None;
        }
        let (high, used) = (self.high(), self.used_bits());
        let first = self.dirty_bits().find_without(used, true, 0, high);
        let end = first + count;
        (end <= high && used.find(true, first, end) == end).then_some(first)
    }

    /// Returns whether `count` chunks from `next` on are in the extent of the chunk before.
    pub(crate) fn fits_extent(&self, next: usize, count: usize) -> bool {
        self.align_up(next, EXTENT_CHUNKS).is_some_and(|end| next + count <= end)
    }

    /// Finds the first `count` free chunks below `high`, at a multiple of `align`.
    ///
    /// Prefers chunks that are all mapped, because others take address space.
    pub(super) fn find(&self, count: usize, align: usize) -> Option<usize> {
        let (used, unmapped) = (self.used_bits(), self.unmapped_bits());
        let mapped = || {
            let is_possible = self.holes.load(Relaxed) > 0 && self.mapped_free() >= count;
            is_possible.then(|| self.find_among(Wanted::Mapped([used, unmapped]), count, align))?
        };
        mapped().or_else(|| self.find_among(Wanted::Free(used), count, align))
    }

    /// Finds `count` chunks that are all mapped, those committed ahead included.
    pub(super) fn find_mapped(&self, count: usize, align: usize) -> Option<usize> {
        let (used, unmapped) = (self.used_bits(), self.unmapped_bits());
        self.find_among(Wanted::Mapped([used, unmapped]), count, align).or_else(|| {
            let (high, tail) = (self.high(), used.after_last(0, self.high()));
            let mapped = Bits::after_last_of_none([used, unmapped, unmapped], false, 0, high);
            let first = self.align_up(mapped, align)?;
            let end = first.checked_add(count)?;
            if end > self.committed.load(Relaxed) {
                return None;
            }
            self.raise_max_run(tail, end);
            // Release: pairs with the Acquire in `slab`, so that a chunk below `high` is committed.
            self.high.store(high.max(end), Release);
            Some(first)
        })
    }

    /// Finds the first `count` holes.
    pub(super) fn find_holes(&self, count: usize) -> Option<usize> {
        let is_possible = self.holes.load(Relaxed) >= count;
        let among = || Wanted::Holes([self.used_bits(), self.unmapped_bits()]);
        is_possible.then(|| self.find_among(among(), count, 1))?
    }

    fn find_among(&self, wanted: Wanted, count: usize, align: usize) -> Option<usize> {
        let high = self.high();
        for summary in 0..high.div_ceil(SUMMARY_CHUNKS) {
            let max_run = self.max_run(summary);
            // A part of a run may begin in a later group than the run.
            let is_all = matches!(wanted, Wanted::Free(_));
            let has_part = || !is_all && self.is_free_across(summary * SUMMARY_CHUNKS);
            if max_run.load(Relaxed) as usize >= count || has_part() {
                match self.find_in_summary(wanted, summary, high, count, align)? {
                    Ok(first) => return Some(first),
                    // Runs of some of the free chunks bound no others.
                    Err(longest) if is_all => max_run.store(longest, Relaxed),
                    Err(_) => {}
                }
            }
        }
        None
    }

    /// Returns whether a free run goes on from before a chunk.
    fn is_free_across(&self, chunk: usize) -> bool {
        let used = self.used_bits();
        chunk > 0 && !used.has(chunk - 1) && !used.has(chunk)
    }

    /// Finds them in a run that begins in a group, or else returns the longest such run.
    fn find_in_summary(
        &self,
        wanted: Wanted,
        summary: usize,
        high: usize,
        count: usize,
        align: usize,
    ) -> Option<Result<usize, u32>> {
        let end = high.min((summary + 1) * SUMMARY_CHUNKS);
        let (mut at, mut longest) = (summary * SUMMARY_CHUNKS, 0);
        if at > 0 && wanted.find(true, at - 1, at) < at {
            // This run begins in an earlier group.
            at = wanted.find(false, at, end);
        }
        loop {
            at = wanted.find(true, at, end);
            if at == end {
                return Some(Err(longest));
            }
            let first = self.align_up(at, align)?;
            let after = first.checked_add(count)?;
            let stop = wanted.find(false, at, after.min(high));
            if stop == after {
                return Some(Ok(first));
            }
            longest = longest.max(run_in_summary(at, stop));
            at = stop;
        }
    }

    /// Raises `max_run` for a free run from `first` to `end` at most, which begins or will.
    pub(super) fn raise_max_run(&self, first: usize, end: usize) {
        if first < end {
            let max_run = self.max_run(first / SUMMARY_CHUNKS);
            max_run.store(max_run.load(Relaxed).max(run_in_summary(first, end)), Relaxed);
        }
    }

    /// Raises `max_run` for the run that begins behind chunks about to be used.
    pub(super) fn raise_after(&self, end: usize) {
        self.raise_max_run(end, self.end_of_run(end, summary_end(end)));
    }

    /// Raises `max_run` for the run that chunks about to be freed will be in.
    pub(super) fn raise_for_free(&self, first: usize, count: usize) {
        let (used, summary_start) = (self.used_bits(), first / SUMMARY_CHUNKS * SUMMARY_CHUNKS);
        let start = used.after_last(summary_start, first);
        if start == summary_start && start > 0 && !used.has(start - 1) {
            // The run begins in an earlier group. If that is not the previous one, its `max_run` is
            // `CONTINUES` already.
            return self.raise_max_run(start - 1, first + count);
        }
        self.raise_max_run(start, self.end_of_run(first + count, summary_end(start)));
    }

    /// Returns the end of the free run that goes on at `from`, or a chunk behind `near`.
    fn end_of_run(&self, from: usize, near: usize) -> usize {
        let most = self.high().min(near + 1).max(from);
        self.used_bits().find(true, from, most)
    }
}

#[cfg(all(test, not(thiscpu_model)))]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::slab::arena::holes::tests::make_holes;
    use crate::slab::arena::{CHUNK_BYTES, NO_TAG};

    /// The chunks of an arena, in the plainest way.
    struct Naive {
        arena: &'static Arena,
        used: Vec<bool>,
        unmapped: Vec<bool>,
    }

    impl Naive {
        fn is_free(&self, first: usize, count: usize) -> bool {
            self.used.get(first..first + count).is_some_and(|chunks| !chunks.contains(&true))
        }

        fn put(&mut self, first: usize, count: usize, value: bool) {
            self.used.resize(self.used.len().max(first + count), false);
            self.used[first..first + count].fill(value);
            self.unmapped.resize(self.used.len(), false);
            self.unmapped[first..first + count].fill(false);
        }

        fn put_holes(&mut self, first: usize, count: usize) {
            self.put(first, count, false);
            self.unmapped[first..first + count].fill(true);
        }

        /// Returns the first fit, or else the first chunk behind all used ones.
        ///
        /// Prefers a fit among mapped chunks.
        fn find(&self, count: usize, align: usize) -> usize {
            let align_up = |chunk| self.arena.align_up(chunk, align).expect("far from the end");
            let is_mapped = |chunk: usize| !self.used[chunk] && !self.unmapped[chunk];
            let starts = (1..self.used.len()).filter(|&chunk| !is_mapped(chunk - 1));
            let mut mapped = [0].into_iter().chain(starts).map(align_up).filter(|&first| {
                first + count <= self.used.len() && (first..first + count).all(is_mapped)
            });
            let starts = (0..self.used.len()).filter(|&chunk| chunk == 0 || self.used[chunk - 1]);
            let mut fitting = starts.map(align_up).filter(|&first| self.is_free(first, count));
            let has_holes = self.unmapped.contains(&true);
            let mapped = if has_holes { mapped.next() } else { None };
            mapped.or_else(|| fitting.next()).unwrap_or_else(|| {
                let last = self.used.iter().rposition(|&is_used| is_used);
                align_up(last.map_or(0, |last| last + 1))
            })
        }
    }

    #[test]
    fn alloc_is_first_fit() {
        let phase_rounds = if thiscpu_test_support::is_quick() { 100 } else { 500 };
        check_first_fit(1, phase_rounds, false);
    }

    #[test]
    fn alloc_is_first_fit_among_mapped_chunks() {
        check_first_fit(1, 100, true);
    }

    #[test]
    fn alloc_is_first_fit_at_group_borders() {
        check_first_fit(SUMMARY_CHUNKS / 4, 50, false);
    }

    /// Compares the arena with the naive one in random steps, with multiples of `step` chunks.
    ///
    /// `with_holes` says whether freed chunks are unmapped.
    fn check_first_fit(step: usize, phase_rounds: usize, with_holes: bool) {
        let arena: &'static Arena = Box::leak(Box::new(Arena::new()));
        let mut naive = Naive { arena, used: Vec::new(), unmapped: Vec::new() };
        let mut taken: Vec<(usize, usize)> = Vec::new();
        let mut seed = 1_u64;
        let mut random = |below: usize| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % below
        };
        for round in 0..30 * phase_rounds {
            // Phases mostly allocate, then mostly free, at random or in the order of addresses.
            let phase = round / phase_rounds % 4;
            if random(10) < [8, 5, 2, 2][phase] || taken.is_empty() {
                let most = [20, 20, 20, 20, 300, 3_000][random(if step == 1 { 6 } else { 4 })];
                let count = step * (1 + random(most / step.min(5)));
                let align = [1, 1, 1, 16, 256][random(if step == 1 { 5 } else { 3 })];
                let first = naive.find(count, align);
                assert_eq!(
                    arena.alloc(count, align),
                    Some(first),
                    "{count} chunks in round {round}"
                );
                naive.put(first, count, true);
                taken.push((first, count));
                continue;
            }
            if phase == 3 {
                taken.sort_unstable_by_key(|&(first, _)| usize::MAX - first);
            }
            let which = if phase >= 2 { taken.len() - 1 } else { random(taken.len()) };
            let (first, count) = taken.swap_remove(which);
            let (end, more) = (first + count, step * (1 + random(50 / step.min(10))));
            match random(8) {
                0 => {
                    let is_free =
                        (end..(end + more).min(naive.used.len())).all(|chunk| !naive.used[chunk]);
                    assert_eq!(arena.extend(end, more).is_some(), is_free, "in round {round}");
                    let more = if is_free { more } else { 0 };
                    naive.put(first, count + more, true);
                    taken.push((first, count + more));
                }
                1 if count > step => {
                    let kept = step * (1 + random(count / step - 1));
                    arena.free(first + kept, count - kept);
                    naive.put(first + kept, count - kept, false);
                    taken.push((first, kept));
                }
                2..5 if with_holes => {
                    make_holes(arena, first, count);
                    naive.put_holes(first, count);
                }
                _ => {
                    arena.free(first, count);
                    naive.put(first, count, false);
                }
            }
        }
        assert!(
            naive.used.len() > 5 * SUMMARY_CHUNKS,
            "only {} chunks were used",
            naive.used.len()
        );
        assert_eq!(arena.tag(0), NO_TAG);
    }

    /// Allocates single chunks for two callers in turn, until there are `most` or none is left.
    fn alloc_in_turn(arena: &Arena, most: usize) -> [Vec<usize>; 2] {
        let mut taken = [Vec::new(), Vec::new()];
        for turn in 0..most {
            let chunks = &mut taken[turn % 2];
            let Some(chunk) = arena.alloc_in_extent(chunks.last().map_or(0, |last| last + 1), 1)
            else {
                break;
            };
            chunks.push(chunk);
        }
        taken
    }

    #[test]
    fn callers_get_separate_extents() {
        let arena: &'static Arena = Box::leak(Box::new(Arena::new()));
        arena.init().expect("there is memory");
        // The next extent is all free, except for one chunk.
        let next = arena.align_up(1, EXTENT_CHUNKS).expect("far from the end");
        assert_eq!(arena.alloc(next + 1, 1), Some(0));
        let taken = alloc_in_turn(arena, 4 * EXTENT_CHUNKS);
        let extents = taken.map(|chunks| {
            chunks
                .iter()
                .map(|&chunk| arena.address(chunk) / CHUNK_BYTES / EXTENT_CHUNKS)
                .collect::<BTreeSet<_>>()
        });
        assert!(extents.iter().all(|of_one| of_one.len() == 2), "{extents:?}");
        assert!(extents[0].is_disjoint(&extents[1]), "{extents:?}");
    }

    #[test]
    fn dirty_chunks_are_used_before_a_new_extent_begins() {
        let arena: &'static Arena = Box::leak(Box::new(Arena::new()));
        arena.init().expect("there is memory");
        let elsewhere = arena.align_up(0, EXTENT_CHUNKS).expect("far from the end");
        let end = elsewhere + 4;
        assert_eq!(arena.alloc(end, 1), Some(0));
        assert_ne!(
            arena.alloc_in_extent(elsewhere, 1),
            Some(end),
            "a chunk without pages was preferred"
        );
        arena.free_clean(0, 1);
        arena.free(2, 1);
        assert_eq!(arena.alloc_in_extent(elsewhere, 1), Some(2));
        arena.free(2, 1);
        assert_ne!(arena.alloc_in_extent(elsewhere, 2), Some(2), "only one chunk is free there");
    }

    #[test]
    fn free_extent_is_used_again() {
        let arena: &'static Arena = Box::leak(Box::new(Arena::new()));
        arena.init().expect("there is memory");
        let first = arena.align_up(1, EXTENT_CHUNKS).expect("far from the end");
        assert_eq!(arena.alloc(first + EXTENT_CHUNKS + 1, 1), Some(0));
        arena.free_clean(first, EXTENT_CHUNKS);
        assert_eq!(arena.alloc_in_extent(first, 1), Some(first));
    }

    #[test]
    fn all_chunks_are_used_when_extents_run_out() {
        const CHUNKS: usize = 256;
        // The number of extents left for the two callers is even, then odd.
        for before in [EXTENT_CHUNKS / 2, EXTENT_CHUNKS + EXTENT_CHUNKS / 2] {
            let arena: &'static Arena = Box::leak(Box::new(Arena::new()));
            // Another test may map something where there was room.
            assert!((0..10).any(|_| arena.init_with(CHUNKS).is_some()), "there is no room");
            assert_eq!(arena.alloc(before, 1), Some(0));
            let taken = alloc_in_turn(arena, CHUNKS);
            let all: BTreeSet<usize> = taken.iter().flatten().copied().collect();
            assert_eq!(before + all.len(), CHUNKS);
        }
    }
}

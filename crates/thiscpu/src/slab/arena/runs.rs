//! Finding free chunks that follow each other: the first run that is long enough; or, for slabs of which there are many, where a extent
//! of them may begin.
//!
//! For each summary of 1,024 chunks there is a max_run: no free run that begins in it is longer. A run that goes on in the next summary
//! has no length there but [`CONTINUES`], so that what is freed behind it, or joined to it from behind, changes nothing where it begins, and
//! nobody has to go back there: that may be far, where much was freed. Who searches passes by
//! summaries whose max_run is too low, and lowers that of a summary where it has looked in vain to what it has seen; who gives chunks back
//! raises that of the summary where the run begins that they are now in, before they are free. So a max_run
//! is never too low, but where a fork has cut the taking of a long run in two, until something beside that run is freed; and
//! one that is too high costs one look.

use super::{Arena, SUMMARY_CHUNKS};
use crate::sys::atomic::{AtomicU32, Ordering::Relaxed};

/// The chunks of a extent, which begins at a multiple of as many: a mebibyte.
const EXTENT_CHUNKS: usize = 16;
/// The max_run of a summary in which a free run begins that does not end there.
const CONTINUES: u32 = u32::MAX;

/// Where the summary of a chunk ends.
fn summary_end(chunk: usize) -> usize {
    (chunk / SUMMARY_CHUNKS + 1) * SUMMARY_CHUNKS
}

/// The length of a free run, to the summary in which it begins.
fn run_in_summary(first: usize, end: usize) -> u32 {
    if end > summary_end(first) { CONTINUES } else { (end - first) as u32 }
}

impl Arena {
    fn max_run(&self, summary: usize) -> &'static AtomicU32 {
        assert!(summary * SUMMARY_CHUNKS < self.len.load(Relaxed));
        let max_runs = self.start.load(Relaxed) as *const AtomicU32;
        // SAFETY: there is one for each summary, accessible for ever; zero is one.
        unsafe { &*max_runs.add(summary) }
    }

    /// The first of `count` free chunks at a multiple of `align`.
    pub(super) fn find_any(&self, count: usize, align: usize) -> Option<usize> {
        self.find(count, align).or_else(|| self.find_at_end(count, align))
    }

    /// The same for the first of many: where a extent begins that is all free, unless there are chunks that have their pages still. If
    /// there is no room for that, anywhere.
    pub(super) fn find_extent(&self, count: usize) -> Option<usize> {
        self.find_dirty(count)
            .or_else(|| self.find(EXTENT_CHUNKS, EXTENT_CHUNKS))
            .or_else(|| self.find_at_end(count, EXTENT_CHUNKS))
            .or_else(|| self.find_any(count, 1))
    }

    /// The first free chunk that may have its pages, and those behind it, if so many are free there.
    fn find_dirty(&self, count: usize) -> Option<usize> {
        if self.dirty.load(Relaxed) == 0 {
            return None;
        }
        let (high, used) = (self.high(), self.used_bits());
        let first = self.dirty_bits().find_without(used, true, 0, high);
        let end = first + count;
        (end <= high && used.find(true, first, end) == end).then_some(first)
    }

    /// Whether so many chunks from one on are in the extent of the one before.
    pub(crate) fn fits_extent(&self, next: usize, count: usize) -> bool {
        self.align_up(next, EXTENT_CHUNKS).is_some_and(|end| next + count <= end)
    }

    /// The first of `count` free chunks below `high`, at a multiple of `align`.
    pub(super) fn find(&self, count: usize, align: usize) -> Option<usize> {
        let high = self.high();
        for summary in 0..high.div_ceil(SUMMARY_CHUNKS) {
            let max_run = self.max_run(summary);
            if max_run.load(Relaxed) as usize >= count {
                match self.find_in_summary(summary, high, count, align)? {
                    Ok(first) => return Some(first),
                    Err(longest) => max_run.store(longest, Relaxed),
                }
            }
        }
        None
    }

    /// The same in runs that begin in a summary; else the length of the longest of them.
    fn find_in_summary(
        &self,
        summary: usize,
        high: usize,
        count: usize,
        align: usize,
    ) -> Option<Result<usize, u32>> {
        let used = self.used_bits();
        let end = high.min((summary + 1) * SUMMARY_CHUNKS);
        let (mut at, mut longest) = (summary * SUMMARY_CHUNKS, 0);
        if at > 0 && !used.has(at - 1) {
            // It begins before.
            at = used.find(true, at, end);
        }
        loop {
            at = used.find(false, at, end);
            if at == end {
                return Some(Err(longest));
            }
            let first = self.align_up(at, align)?;
            let wanted = first.checked_add(count)?;
            let stop = used.find(true, at, wanted.min(high));
            if stop == wanted {
                return Some(Ok(first));
            }
            longest = longest.max(run_in_summary(at, stop));
            at = stop;
        }
    }

    /// A free run begins at a chunk, or will, and ends there at the latest.
    pub(super) fn raise_max_run(&self, first: usize, end: usize) {
        if first < end {
            let max_run = self.max_run(first / SUMMARY_CHUNKS);
            max_run.store(max_run.load(Relaxed).max(run_in_summary(first, end)), Relaxed);
        }
    }

    /// What begins behind chunks that are taken.
    pub(super) fn raise_after(&self, end: usize) {
        self.raise_max_run(end, self.end_of_run(end, summary_end(end)));
    }

    /// What the chunks will be in when they are free.
    pub(super) fn raise_for_free(&self, first: usize, count: usize) {
        let (used, summary_start) = (self.used_bits(), first / SUMMARY_CHUNKS * SUMMARY_CHUNKS);
        let start = used.after_last(summary_start, first);
        if start == summary_start && start > 0 && !used.has(start - 1) {
            // It begins in a summary before, and if that is not the last one the max_run there says so by now.
            return self.raise_max_run(start - 1, first + count);
        }
        self.raise_max_run(start, self.end_of_run(first + count, summary_end(start)));
    }

    /// Where a free run ends that goes on at a chunk, or somewhere behind `near`.
    fn end_of_run(&self, from: usize, near: usize) -> usize {
        let most = self.high().min(near + 1).max(from);
        self.used_bits().find(true, from, most)
    }
}

#[cfg(all(test, not(thiscpu_model)))]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::slab::arena::{CHUNK_BYTES, NO_TAG};

    /// What is said of chunks, in the plainest way.
    struct Naive {
        arena: &'static Arena,
        /// Of all chunks below `high` whether they are used.
        used: Vec<bool>,
    }

    impl Naive {
        fn is_free(&self, first: usize, count: usize) -> bool {
            self.used.get(first..first + count).is_some_and(|chunks| !chunks.contains(&true))
        }

        fn put(&mut self, first: usize, count: usize, value: bool) {
            self.used.resize(self.used.len().max(first + count), false);
            self.used[first..first + count].fill(value);
        }

        /// The first that fits; else what comes after all that is used.
        fn find(&self, count: usize, align: usize) -> usize {
            let align_up = |chunk| self.arena.align_up(chunk, align).expect("far from the end");
            let starts = (0..self.used.len()).filter(|&chunk| chunk == 0 || self.used[chunk - 1]);
            let mut fitting = starts.map(align_up).filter(|&first| self.is_free(first, count));
            fitting.next().unwrap_or_else(|| {
                let last = self.used.iter().rposition(|&is_used| is_used);
                align_up(last.map_or(0, |last| last + 1))
            })
        }
    }

    #[test]
    fn the_first_run_is_found() {
        the_first_is_found(1, 1_000);
    }

    /// The same where runs begin and end where summaries do.
    #[test]
    fn the_first_run_is_found_where_chunks_end() {
        the_first_is_found(SUMMARY_CHUNKS / 4, 50);
    }

    /// Takes, gives and extends so many chunks at random, or times as many; each time the arena says what the naive one does.
    fn the_first_is_found(step: usize, phase_rounds: usize) {
        let arena: &'static Arena = Box::leak(Box::new(Arena::new()));
        let mut naive = Naive { arena, used: Vec::new() };
        let mut taken: Vec<(usize, usize)> = Vec::new();
        let mut seed = 1_u64;
        let mut random = |below: usize| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % below
        };
        for round in 0..30 * phase_rounds {
            // For some time much is taken, then much is given back, in any order or in that of addresses.
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
                _ => {
                    arena.free(first, count);
                    naive.put(first, count, false);
                }
            }
        }
        assert!(naive.used.len() > 5 * SUMMARY_CHUNKS, "only {} chunks", naive.used.len());
        assert_eq!(arena.tag(0), NO_TAG);
    }

    /// Takes a chunk beside the last one of each of two in turn, until there are so many or no more. What each has.
    fn taken_in_turn(arena: &Arena, most: usize) -> [Vec<usize>; 2] {
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
    fn two_have_neighbourhoods_of_their_own() {
        let arena: &'static Arena = Box::leak(Box::new(Arena::new()));
        arena.init().expect("there is memory");
        // The next extent is all free but for one chunk.
        let next = arena.align_up(1, EXTENT_CHUNKS).expect("far from the end");
        assert_eq!(arena.alloc(next + 1, 1), Some(0));
        let taken = taken_in_turn(arena, 4 * EXTENT_CHUNKS);
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
    fn what_has_pages_is_used_before_a_neighbourhood_begins() {
        let arena: &'static Arena = Box::leak(Box::new(Arena::new()));
        assert_eq!(arena.alloc(4, 1), Some(0));
        let nowhere = arena.align_up(0, EXTENT_CHUNKS).expect("far from the end");
        assert_ne!(arena.alloc_in_extent(nowhere, 1), Some(4), "it has no page");
        {
            let _guard = arena.lock();
            arena.mark_free(0, 1, false);
        }
        arena.free(2, 1);
        assert_eq!(arena.alloc_in_extent(nowhere, 1), Some(2));
        arena.free(2, 1);
        assert_ne!(arena.alloc_in_extent(nowhere, 2), Some(2), "there is one");
    }

    #[test]
    fn a_neighbourhood_is_used_again() {
        let arena: &'static Arena = Box::leak(Box::new(Arena::new()));
        arena.init().expect("there is memory");
        let first = arena.align_up(1, EXTENT_CHUNKS).expect("far from the end");
        assert_eq!(arena.alloc(first + EXTENT_CHUNKS + 1, 1), Some(0));
        {
            let _guard = arena.lock();
            arena.mark_free(first, EXTENT_CHUNKS, false);
        }
        assert_eq!(arena.alloc_in_extent(first, 1), Some(first));
    }

    /// Where extents are to be had no more all chunks are used all the same.
    #[test]
    fn none_is_left_over() {
        const UNITS: usize = 256;
        // An even number of extents is left for two, and an odd one.
        for before in [EXTENT_CHUNKS / 2, EXTENT_CHUNKS + EXTENT_CHUNKS / 2] {
            let arena: &'static Arena = Box::leak(Box::new(Arena::new()));
            // A mapping of another test may come in between.
            assert!((0..10).any(|_| arena.init_with(UNITS).is_some()), "there is no room");
            assert_eq!(arena.alloc(before, 1), Some(0));
            let taken = taken_in_turn(arena, UNITS);
            let all: BTreeSet<usize> = taken.iter().flatten().copied().collect();
            assert_eq!(before + all.len(), UNITS);
        }
    }
}

//! Finding free units that follow each other: the first run that is long enough; or, for slabs of which there are many, where a neighbourhood
//! of them may begin.
//!
//! For each chunk of 1,024 units there is a bound: no free run that begins in it is longer. A run that goes on in the next chunk
//! has no length there but [`BEYOND`], so that what is freed behind it, or joined to it from behind, changes nothing where it begins, and
//! nobody has to go back there: that may be far, where much was freed. Who searches passes by
//! chunks whose bound is too low, and lowers that of a chunk where it has looked in vain to what it has seen; who gives units back
//! raises that of the chunk where the run begins that they are now in, before they are free. So a bound
//! is never too low, but where a fork has cut the taking of a long run in two, until something beside that run is freed; and
//! one that is too high costs one look.

use super::{CHUNK, Space};
use crate::sys::atomic::{AtomicU32, Ordering::Relaxed};

/// The units of a neighbourhood, which begins at a multiple of as many: a mebibyte.
const NEIGHBOURS: usize = 16;
/// The bound of a chunk in which a free run begins that does not end there.
const BEYOND: u32 = u32::MAX;

/// Where the chunk of a unit ends.
fn chunk_end(unit: usize) -> usize {
    (unit / CHUNK + 1) * CHUNK
}

/// The length of a free run, to the chunk in which it begins.
fn length(first: usize, end: usize) -> u32 {
    if end > chunk_end(first) { BEYOND } else { (end - first) as u32 }
}

impl Space {
    fn bound(&self, chunk: usize) -> &'static AtomicU32 {
        assert!(chunk * CHUNK < self.most.load(Relaxed));
        let bounds = self.start.load(Relaxed) as *const AtomicU32;
        // SAFETY: there is one for each chunk, accessible for ever; zero is one.
        unsafe { &*bounds.add(chunk) }
    }

    /// The first of `count` free units at a multiple of `align`.
    pub(super) fn find_anywhere(&self, count: usize, align: usize) -> Option<usize> {
        self.find(count, align).or_else(|| self.find_at_end(count, align))
    }

    /// The same for the first of many: where a neighbourhood begins that is all free, unless there are units that have their pages still. If
    /// there is no room for that, anywhere.
    pub(super) fn find_apart(&self, count: usize) -> Option<usize> {
        self.find_dirty(count)
            .or_else(|| self.find(NEIGHBOURS, NEIGHBOURS))
            .or_else(|| self.find_at_end(count, NEIGHBOURS))
            .or_else(|| self.find_anywhere(count, 1))
    }

    /// The first free unit that may have its pages, and those behind it, if so many are free there.
    fn find_dirty(&self, count: usize) -> Option<usize> {
        if self.dirty.load(Relaxed) == 0 {
            return None;
        }
        let (high, used) = (self.high(), self.used_bits());
        let first = self.dirty_bits().find_without(used, true, 0, high);
        let end = first + count;
        (end <= high && used.find(true, first, end) == end).then_some(first)
    }

    /// Whether so many units from one on are in the neighbourhood of the one before.
    pub(crate) fn has_neighbours(&self, next: usize, count: usize) -> bool {
        self.aligned(next, NEIGHBOURS).is_some_and(|end| next + count <= end)
    }

    /// The first of `count` free units below `high`, at a multiple of `align`.
    pub(super) fn find(&self, count: usize, align: usize) -> Option<usize> {
        let high = self.high();
        for chunk in 0..high.div_ceil(CHUNK) {
            let bound = self.bound(chunk);
            if bound.load(Relaxed) as usize >= count {
                match self.find_in(chunk, high, count, align)? {
                    Ok(first) => return Some(first),
                    Err(longest) => bound.store(longest, Relaxed),
                }
            }
        }
        None
    }

    /// The same in runs that begin in a chunk; else the length of the longest of them.
    fn find_in(
        &self,
        chunk: usize,
        high: usize,
        count: usize,
        align: usize,
    ) -> Option<Result<usize, u32>> {
        let used = self.used_bits();
        let end = high.min((chunk + 1) * CHUNK);
        let (mut at, mut longest) = (chunk * CHUNK, 0);
        if at > 0 && !used.has(at - 1) {
            // It begins before.
            at = used.find(true, at, end);
        }
        loop {
            at = used.find(false, at, end);
            if at == end {
                return Some(Err(longest));
            }
            let first = self.aligned(at, align)?;
            let wanted = first.checked_add(count)?;
            let stop = used.find(true, at, wanted.min(high));
            if stop == wanted {
                return Some(Ok(first));
            }
            longest = longest.max(length(at, stop));
            at = stop;
        }
    }

    /// A free run begins at a unit, or will, and ends there at the latest.
    pub(super) fn raise(&self, first: usize, end: usize) {
        if first < end {
            let bound = self.bound(first / CHUNK);
            bound.store(bound.load(Relaxed).max(length(first, end)), Relaxed);
        }
    }

    /// What begins behind units that are taken.
    pub(super) fn raise_behind(&self, end: usize) {
        self.raise(end, self.end_of_run(end, chunk_end(end)));
    }

    /// What the units will be in when they are free.
    pub(super) fn raise_around(&self, first: usize, count: usize) {
        let (used, chunk_start) = (self.used_bits(), first / CHUNK * CHUNK);
        let start = used.after_last(chunk_start, first);
        if start == chunk_start && start > 0 && !used.has(start - 1) {
            // It begins in a chunk before, and if that is not the last one the bound there says so by now.
            return self.raise(start - 1, first + count);
        }
        self.raise(start, self.end_of_run(first + count, chunk_end(start)));
    }

    /// Where a free run ends that goes on at a unit, or somewhere behind `near`.
    fn end_of_run(&self, from: usize, near: usize) -> usize {
        let most = self.high().min(near + 1).max(from);
        self.used_bits().find(true, from, most)
    }
}

#[cfg(all(test, not(thiscpu_model)))]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::slab::arena::{NOTHING, UNIT};

    /// What is said of units, in the plainest way.
    struct Naive {
        space: &'static Space,
        /// Of all units below `high` whether they are used.
        used: Vec<bool>,
    }

    impl Naive {
        fn is_free(&self, first: usize, count: usize) -> bool {
            self.used.get(first..first + count).is_some_and(|units| !units.contains(&true))
        }

        fn put(&mut self, first: usize, count: usize, value: bool) {
            self.used.resize(self.used.len().max(first + count), false);
            self.used[first..first + count].fill(value);
        }

        /// The first that fits; else what comes after all that is used.
        fn find(&self, count: usize, align: usize) -> usize {
            let aligned = |unit| self.space.aligned(unit, align).expect("far from the end");
            let starts = (0..self.used.len()).filter(|&unit| unit == 0 || self.used[unit - 1]);
            let mut fitting = starts.map(aligned).filter(|&first| self.is_free(first, count));
            fitting.next().unwrap_or_else(|| {
                let last = self.used.iter().rposition(|&is_used| is_used);
                aligned(last.map_or(0, |last| last + 1))
            })
        }
    }

    #[test]
    fn the_first_run_is_found() {
        the_first_is_found(1, 1_000);
    }

    /// The same where runs begin and end where chunks do.
    #[test]
    fn the_first_run_is_found_where_chunks_end() {
        the_first_is_found(CHUNK / 4, 50);
    }

    /// Takes, gives and extends so many units at random, or times as many; each time the space says what the naive one does.
    fn the_first_is_found(step: usize, phase_rounds: usize) {
        let space: &'static Space = Box::leak(Box::new(Space::new()));
        let mut naive = Naive { space, used: Vec::new() };
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
                assert_eq!(space.take(count, align), Some(first), "{count} units in round {round}");
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
                        (end..(end + more).min(naive.used.len())).all(|unit| !naive.used[unit]);
                    assert_eq!(space.extend(end, more).is_some(), is_free, "in round {round}");
                    let more = if is_free { more } else { 0 };
                    naive.put(first, count + more, true);
                    taken.push((first, count + more));
                }
                1 if count > step => {
                    let kept = step * (1 + random(count / step - 1));
                    space.give(first + kept, count - kept);
                    naive.put(first + kept, count - kept, false);
                    taken.push((first, kept));
                }
                _ => {
                    space.give(first, count);
                    naive.put(first, count, false);
                }
            }
        }
        assert!(naive.used.len() > 5 * CHUNK, "only {} units", naive.used.len());
        assert_eq!(space.tag(0), NOTHING);
    }

    /// Takes a unit beside the last one of each of two in turn, until there are so many or no more. What each has.
    fn taken_in_turn(space: &Space, most: usize) -> [Vec<usize>; 2] {
        let mut taken = [Vec::new(), Vec::new()];
        for turn in 0..most {
            let units = &mut taken[turn % 2];
            let Some(unit) = space.take_beside(units.last().map_or(0, |last| last + 1), 1) else {
                break;
            };
            units.push(unit);
        }
        taken
    }

    #[test]
    fn two_have_neighbourhoods_of_their_own() {
        let space: &'static Space = Box::leak(Box::new(Space::new()));
        space.begin().expect("there is memory");
        // The next neighbourhood is all free but for one unit.
        let next = space.aligned(1, NEIGHBOURS).expect("far from the end");
        assert_eq!(space.take(next + 1, 1), Some(0));
        let taken = taken_in_turn(space, 4 * NEIGHBOURS);
        let neighbourhoods = taken.map(|units| {
            units
                .iter()
                .map(|&unit| space.address(unit) / UNIT / NEIGHBOURS)
                .collect::<BTreeSet<_>>()
        });
        assert!(neighbourhoods.iter().all(|of_one| of_one.len() == 2), "{neighbourhoods:?}");
        assert!(neighbourhoods[0].is_disjoint(&neighbourhoods[1]), "{neighbourhoods:?}");
    }

    #[test]
    fn what_has_pages_is_used_before_a_neighbourhood_begins() {
        let space: &'static Space = Box::leak(Box::new(Space::new()));
        assert_eq!(space.take(4, 1), Some(0));
        let nowhere = space.aligned(0, NEIGHBOURS).expect("far from the end");
        assert_ne!(space.take_beside(nowhere, 1), Some(4), "it has no page");
        {
            let _guard = space.lock();
            space.give_at(0, 1, false);
        }
        space.give(2, 1);
        assert_eq!(space.take_beside(nowhere, 1), Some(2));
        space.give(2, 1);
        assert_ne!(space.take_beside(nowhere, 2), Some(2), "there is one");
    }

    #[test]
    fn a_neighbourhood_is_used_again() {
        let space: &'static Space = Box::leak(Box::new(Space::new()));
        space.begin().expect("there is memory");
        let first = space.aligned(1, NEIGHBOURS).expect("far from the end");
        assert_eq!(space.take(first + NEIGHBOURS + 1, 1), Some(0));
        {
            let _guard = space.lock();
            space.give_at(first, NEIGHBOURS, false);
        }
        assert_eq!(space.take_beside(first, 1), Some(first));
    }

    /// Where neighbourhoods are to be had no more all units are used all the same.
    #[test]
    fn none_is_left_over() {
        const UNITS: usize = 256;
        // An even number of neighbourhoods is left for two, and an odd one.
        for before in [NEIGHBOURS / 2, NEIGHBOURS + NEIGHBOURS / 2] {
            let space: &'static Space = Box::leak(Box::new(Space::new()));
            // A mapping of another test may come in between.
            assert!((0..10).any(|_| space.begin_with(UNITS).is_some()), "there is no room");
            assert_eq!(space.take(before, 1), Some(0));
            let taken = taken_in_turn(space, UNITS);
            let all: BTreeSet<usize> = taken.iter().flatten().copied().collect();
            assert_eq!(before + all.len(), UNITS);
        }
    }
}

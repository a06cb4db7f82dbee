//! Huge pages that slabs fill, once there are many of small objects: they touch all of their units before long, and a fault for 2 MiB takes the time of some for 4 KiB.
//!
//! A slab that is the first in a huge page's range, of which nothing has pages yet, asks for all of it, unless others have left much idle. The first units that are given back there make what
//! is still free count as if it had pages, because it has; and who drops pages in it stops that it asks, or the kernel would soon fill it up again. So
//! it may ask once more.
//!
//! Pages belong to a node, and a huge one to whose slab comes first: where there are several nodes none asks. Ranges that ask may each take two more of the
//! process's mappings, so those far into the space do not.

use core::ops::Range;
use core::sync::atomic::AtomicIsize;

use super::bits::Bits;
use super::slab::Shape;
use super::{Space, UNIT};
use crate::sys::Host;
use crate::sys::atomic::{
    AtomicU64,
    Ordering::{Relaxed, Release},
};
use crate::sys::machine::Machine as _;

/// The bytes of a huge page, where others have 4 KiB.
pub(super) const HUGE_PAGE: usize = 2 * 1024 * 1024;
/// The units of a huge page.
const UNITS: usize = HUGE_PAGE / UNIT;
/// So many of the space's first ones may ask, 16 GiB.
const PAGES: usize = if cfg!(thiscpu_model) { 64 } else { 8192 };
/// Objects of so many bytes at most are small; of larger ones there may be pages that nobody touches.
const SMALL_MOST: usize = 4096;
/// Once slabs of small objects have so many units, 4 MiB: a process with less has no page more than it touches.
const SMALL_LEAST: isize = 2 * UNITS as isize;

#[derive(Debug)]
pub(super) struct Packed {
    /// How many units slabs of small objects have; about, and not modelled.
    small: AtomicIsize,
    /// Which of those pages ask. Set and looked at under the space's lock.
    asks: [AtomicU64; PAGES / 64],
}

impl Packed {
    pub(super) const fn new() -> Packed {
        Packed { small: AtomicIsize::new(0), asks: [const { AtomicU64::new(0) }; PAGES / 64] }
    }

    fn asks(&self) -> Bits<'_> {
        Bits(&self.asks)
    }
}

/// The units of a slab of that shape, if its objects are small.
fn small_units(shape: Shape) -> isize {
    if shape.size <= SMALL_MOST { shape.units as isize } else { 0 }
}

impl Space {
    /// The huge pages that may ask and of which some of these units are a part, and where they begin.
    fn packable(&self, first: usize, count: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        // The first unit that begins one.
        let from = self.aligned(0, UNITS).unwrap_or(usize::MAX);
        let begin = first.saturating_sub(from) / UNITS;
        let end = (first + count).saturating_sub(from).div_ceil(UNITS).min(PAGES);
        (begin..end).map(move |page| (page, from + page * UNITS))
    }

    /// Those that ask.
    fn packed(&self, first: usize, count: usize) -> impl Iterator<Item = (usize, usize)> {
        self.packable(first, count).filter(|&(page, _)| self.packed.asks().has(page))
    }

    /// Whether a unit is in one of them; about.
    pub(super) fn is_packed(&self, unit: usize) -> bool {
        self.packed(unit, 1).next().is_some()
    }

    /// A slab has just got units. Where it is the first in a huge page's range, asks for that.
    pub(crate) fn pack(&self, first: usize, shape: Shape) {
        let small = small_units(shape);
        // Relaxed, all of it: an estimate.
        let before = self.packed.small.fetch_add(small, Relaxed);
        if small == 0 || before < SMALL_LEAST || Host::nodes() > 1 || Host::page_bytes() != 4096 {
            return;
        }
        let _guard = self.lock();
        for (page, begin) in self.packable(first, shape.units) {
            let asks = self.packed.asks();
            if !asks.has(page) && self.may_pack(begin, first..first + shape.units) {
                // First: a child that is forked in between counts pages that there are not, and misses none.
                asks.put(page, 1, true);
                if !Host::prefer_huge_pages(self.address(begin), HUGE_PAGE, true) {
                    asks.put(page, 1, false);
                }
            }
        }
    }

    /// A slab has ended.
    pub(crate) fn packed_less(&self, shape: Shape) {
        self.packed.small.fetch_sub(small_units(shape), Relaxed);
    }

    /// Whether nothing in a huge page's range has pages or is used, but for what a slab has just got, and all of it is accessible now; unless
    /// slabs still have much to fill.
    fn may_pack(&self, begin: usize, own: Range<usize>) -> bool {
        let (high, end) = (self.high(), begin + UNITS);
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
            && self.idle() <= self.used.load(Relaxed) / 16 + UNITS;
        if !is_fresh || self.open_to(end).is_err() {
            return false;
        }
        if end > high {
            // What is free below is found, and counted if it has pages.
            self.raise_around(high, end - high);
            // Release: pairs with the Acquire in `slab`; it is accessible.
            self.high.store(end, Release);
        }
        true
    }

    /// How many units have pages without ever having been anybody's; for sure under the lock.
    pub(super) fn idle(&self) -> usize {
        let high = self.high();
        if high == 0 {
            return 0;
        }
        let (used, dirty) = (self.used_bits(), self.dirty_bits());
        self.packed(0, high).map(|(_, begin)| used.count_neither(dirty, begin, UNITS)).sum()
    }

    /// These units are about to be given back, or all free ones to be dropped: what else is free in their huge pages has pages too. Under the lock.
    pub(super) fn give_packed(&self, first: usize, count: usize) {
        for (_, begin) in self.packed(first, count) {
            let (used, dirty) = (self.used_bits(), self.dirty_bits());
            let clean = (begin..begin + UNITS).filter(|&unit| !used.has(unit) && dirty.set(unit));
            self.dirty.store(self.dirty.load(Relaxed) + clean.count(), Relaxed);
        }
    }

    /// Pages of free units are about to be dropped, by who has taken them for that.
    pub(super) fn unpack(&self, first: usize, count: usize) {
        if self.packed(first, count).next().is_none() {
            return;
        }
        let _guard = self.lock();
        for (page, begin) in self.packed(first, count) {
            // First: a child that is forked in between does it once more. Nobody asks meanwhile, since those units are this thread's; and what is free
            // besides them was counted when the first were given back.
            Host::prefer_huge_pages(self.address(begin), HUGE_PAGE, false);
            self.packed.asks().put(page, 1, false);
        }
    }
}

#[cfg(all(test, not(thiscpu_model)))]
mod tests {
    use super::*;

    const fn slab(units: usize) -> Shape {
        Shape { size: SMALL_MOST, units, mark: 0 }
    }

    /// A space with units in use up to where a huge page begins, and that unit; and so many slabs of small objects. `None` where none asks.
    fn used(small: isize) -> Option<(&'static Space, usize)> {
        let space: &'static Space = Box::leak(Box::new(Space::new()));
        space.begin().expect("there is memory");
        let begin = space.aligned(UNITS + 1, UNITS).expect("far from the end");
        assert_eq!(space.take(begin, 1), Some(0));
        space.packed.small.store(small, Relaxed);
        (Host::nodes() == 1).then_some((space, begin))
    }

    /// Takes the unit that is next for a slab.
    fn taken(space: &Space, unit: usize) -> bool {
        assert_eq!(space.take(1, 1), Some(unit));
        space.pack(unit, slab(1));
        space.is_packed(unit)
    }

    /// Gives back what has no pages.
    fn give_clean(space: &Space, first: usize, count: usize) {
        let _guard = space.lock();
        space.give_at(first, count, false);
    }

    #[test]
    fn the_first_slab_of_many_asks() {
        let Some((space, begin)) = used(SMALL_LEAST) else { return };
        assert!(taken(space, begin), "the first does not");
        assert!(!space.is_packed(begin - 1) && !space.is_packed(begin + UNITS), "so do others");
        assert_eq!(space.high(), begin + UNITS, "not all of it is counted");
        assert_eq!(space.find(UNITS - 1, 1), Some(begin + 1), "the rest is not found");
        assert!(taken(space, begin + 1), "it does no longer");
    }

    #[test]
    fn none_of_few_asks() {
        let Some((space, begin)) = used(SMALL_LEAST - 1) else { return };
        let large = Shape { size: SMALL_MOST + 1, ..slab(8) };
        space.pack(begin, large);
        assert!(!taken(space, begin), "one less is not enough");
        space.pack(begin, large);
        assert!(!space.is_packed(begin), "large objects ask, once there are many small ones");
        space.packed_less(slab(1));
        assert_eq!(space.take(UNITS - 1, 1), Some(begin + 1));
        assert!(!taken(space, begin + UNITS), "one has ended");
    }

    #[test]
    fn no_range_asks_in_which_something_is() {
        let Some((space, begin)) = used(SMALL_LEAST) else { return };
        assert_eq!(space.take(1, 1), Some(begin));
        assert!(!taken(space, begin + 1), "a unit before is used");
        let next = begin + UNITS;
        assert_eq!(space.take(UNITS - 2, 1), Some(begin + 2));
        assert_eq!(space.take(2, 1), Some(next));
        give_clean(space, next, 1);
        assert!(!taken(space, next), "the unit behind is used");
        space.give(next, 2);
        assert!(!taken(space, next), "two have pages");
    }

    /// What has not been a slab's has pages all the same where a huge one is.
    #[test]
    fn all_that_is_free_is_dropped_once_something_was_given_back() {
        let Some((space, begin)) = used(SMALL_LEAST) else { return };
        assert!(taken(space, begin) && taken(space, begin + 1));
        assert_eq!(space.dirty.load(Relaxed), 0);
        space.give(begin, 1);
        assert_eq!(space.dirty.load(Relaxed), UNITS - 1);
        assert_eq!(space.purge(usize::MAX), UNITS - 1);
        assert!(!space.is_packed(begin), "the kernel is to fill it up again");
        space.give(begin + 1, 1);
        assert_eq!(space.dirty.load(Relaxed), 1, "what was dropped has pages");
        assert_eq!(space.purge(usize::MAX), 1);
        assert!(taken(space, begin), "it asks no more");
    }

    /// Where each of many takes the first unit of a range, most of it is idle.
    #[test]
    fn little_is_idle() {
        let Some((space, begin)) = used(SMALL_LEAST) else { return };
        let firsts = (0..20).map(|page| begin + page * UNITS);
        let asking = firsts.filter(|&first| {
            assert_eq!(space.take_found(1, || space.find_at_end(1, UNITS)), Some(first));
            space.pack(first, slab(1));
            space.is_packed(first)
        });
        assert_eq!(asking.count(), 2, "a second, since the first has left less than all");
        assert_eq!(space.idle(), 2 * (UNITS - 1));
        assert_eq!(space.take(UNITS - 1, 1), Some(begin + 1));
        assert_eq!(space.idle(), UNITS - 1, "it is used");
    }

    /// Of a slab that lies across, both parts may be the first.
    #[test]
    fn both_that_a_slab_is_in_ask() {
        let Some((space, begin)) = used(SMALL_LEAST) else { return };
        let first = begin + UNITS - 2;
        assert_eq!(space.take(UNITS - 2, 1), Some(begin));
        assert_eq!(space.take(4, 1), Some(first));
        give_clean(space, begin, UNITS - 2);
        space.pack(first, slab(4));
        assert!(space.is_packed(begin) && space.is_packed(begin + UNITS));
    }

    /// Only so many may: the others would be mappings that others need.
    #[test]
    fn none_far_in_asks() {
        let Some((space, begin)) = used(SMALL_LEAST) else { return };
        let far = space.aligned(0, UNITS).expect("far from the end") + PAGES * UNITS;
        assert_eq!(space.packable(far - 1, 1).count(), 1);
        assert_eq!(space.packable(far, 1).count(), 0);
        assert_eq!(space.packable(begin - 1, 2).count(), 2);
    }
}

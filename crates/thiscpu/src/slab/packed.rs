//! Huge pages that slabs fill, once there are many of small objects: they touch all of their units before long, and a fault for 2 MiB takes the time of some for 4 KiB.
//!
//! A slab that is the first in a huge page's range, of which nothing has pages yet, asks for all of it. The first units that are given back there make what
//! is still free count as if it had pages, because it has; and who drops pages in it stops that it asks, or the kernel would soon fill it up again. So
//! it may ask once more.
//!
//! Pages belong to a node, and a huge one to whose slab comes first: where there are several nodes none asks. Ranges that ask may each take two more of the
//! process's mappings, so those far into the space do not.

use core::sync::atomic::AtomicIsize;

use super::huge::PAGE;
use super::objects::Shape;
use super::space::{Space, UNIT};
use crate::sys::atomic::{
    AtomicBool,
    Ordering::{Relaxed, Release},
};
use crate::sys::machine::{Here, Machine as _};

/// The units of a huge page.
const UNITS: usize = PAGE / UNIT;
/// So many of the space's first ones may ask, 16 GiB.
const PAGES: usize = if cfg!(thiscpu_model) { 1 } else { 8192 };
/// Objects of so many bytes at most are small; of larger ones there may be pages that nobody touches.
const SMALL_MOST: usize = 2048;
/// Once slabs of small objects have so many units, 4 MiB: a process with less has no page more than it touches.
const SMALL_LEAST: isize = 2 * UNITS as isize;

#[derive(Debug)]
pub(super) struct Packed {
    /// How many units slabs of small objects have; about, and not modelled.
    small: AtomicIsize,
    /// Which of those pages ask. Changed under the space's lock.
    asks: [AtomicBool; PAGES],
}

impl Packed {
    pub(super) const fn new() -> Packed {
        Packed { small: AtomicIsize::new(0), asks: [const { AtomicBool::new(false) }; PAGES] }
    }
}

/// The units of a slab of that shape, if its objects are small.
fn small_units(shape: Shape) -> isize {
    if shape.size <= SMALL_MOST { shape.units as isize } else { 0 }
}

impl Space {
    /// The huge pages that may ask and of which some of these units are a part: whether they do, and where they begin.
    fn packed(&self, first: usize, count: usize) -> impl Iterator<Item = (&AtomicBool, usize)> {
        // The first unit that begins one.
        let from = self.aligned(0, UNITS).unwrap_or(usize::MAX);
        let begin = first.saturating_sub(from) / UNITS;
        let end = (first + count).saturating_sub(from).div_ceil(UNITS).min(PAGES);
        (begin..end).map(move |page| (&self.packed.asks[page], from + page * UNITS))
    }

    /// A slab has just got units. Where it is the first in a huge page's range, asks for that.
    pub(super) fn pack(&self, first: usize, shape: Shape) {
        let (count, small) = (shape.units, small_units(shape));
        // Relaxed, all of it: an estimate.
        if self.packed.small.fetch_add(small, Relaxed) < SMALL_LEAST || Here::nodes() > 1 {
            return;
        }
        let _guard = self.lock();
        for (asks, begin) in self.packed(first, count) {
            if !asks.load(Relaxed) && self.is_fresh(begin, first..first + count) {
                // First: a child that is forked in between counts pages that there are not, and misses none.
                asks.store(true, Relaxed);
                Here::prefer_huge_pages(self.address(begin), PAGE, true);
            }
        }
    }

    /// A slab has ended.
    pub(super) fn packed_less(&self, shape: Shape) {
        self.packed.small.fetch_sub(small_units(shape), Relaxed);
    }

    /// Whether a huge page's range is all accessible now, and nothing in it has pages or is used, but for what a slab has just got.
    fn is_fresh(&self, begin: usize, own: core::ops::Range<usize>) -> bool {
        let end = begin + UNITS;
        if self.open_to(end).is_err() {
            return false;
        }
        let high = self.high();
        if end > high {
            // What is free below is found, and counted if it has pages.
            self.raise_around(high, end - high);
            // Release: pairs with the Acquire in `slab`; it is accessible.
            self.high.store(end, Release);
        }
        let (used, dirty) = (self.used_bits(), self.dirty_bits());
        let free = |from: usize, to: usize| used.find(true, from, to.max(from)) == to.max(from);
        free(begin, own.start) && free(own.end, end) && dirty.find(true, begin, end) == end
    }

    /// Units are given back: what else is free in huge pages that were asked for has pages too.
    pub(super) fn give_packed(&self, first: usize, count: usize) {
        for (_, begin) in self.packed(first, count).filter(|(asks, _)| asks.load(Relaxed)) {
            let (used, dirty) = (self.used_bits(), self.dirty_bits());
            let clean = (begin..begin + UNITS).filter(|&unit| !used.has(unit) && dirty.set(unit));
            self.dirty.store(self.dirty.load(Relaxed) + clean.count(), Relaxed);
        }
    }

    /// Pages of free units are about to be dropped, by who has taken them for that.
    pub(super) fn unpack(&self, first: usize, count: usize) {
        for (asks, begin) in self.packed(first, count) {
            if asks.load(Relaxed) {
                // Under no lock: those units are this thread's, so nobody asks meanwhile, and what is free besides them was counted when the first were given back.
                asks.store(false, Relaxed);
                Here::prefer_huge_pages(self.address(begin), PAGE, false);
            }
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
        (Here::nodes() == 1).then_some((space, begin))
    }

    /// Takes the unit that is next for a slab.
    fn taken(space: &Space, unit: usize) -> bool {
        assert_eq!(space.take(1, 1), Some(unit));
        space.pack(unit, slab(1));
        asks(space, unit)
    }

    fn asks(space: &Space, unit: usize) -> bool {
        space.packed(unit, 1).next().expect("not far in").0.load(Relaxed)
    }

    #[test]
    fn the_first_slab_of_many_asks() {
        let Some((space, begin)) = used(SMALL_LEAST) else { return };
        assert!(taken(space, begin), "the first does not");
        assert!(!asks(space, begin - 1) && !asks(space, begin + UNITS), "so do others");
        assert_eq!(space.high(), begin + UNITS, "not all of it is counted");
        assert!(taken(space, begin + 1), "it does no longer");
    }

    #[test]
    fn none_of_few_asks() {
        let Some((space, begin)) = used(SMALL_LEAST - 1) else { return };
        let large = Shape { size: SMALL_MOST + 1, ..slab(8) };
        space.pack(begin, large);
        assert!(!taken(space, begin), "one less is not enough");
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
        space.give(next, 1);
        assert!(!taken(space, next), "the unit behind is used, and it has a page itself");
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
        assert!(!asks(space, begin), "the kernel is to fill it up again");
        space.give(begin + 1, 1);
        assert_eq!(space.dirty.load(Relaxed), 1, "what was dropped has pages");
        assert_eq!(space.purge(usize::MAX), 1);
        assert!(taken(space, begin), "it asks no more");
    }

    /// Of a slab that lies across, both parts may be the first.
    #[test]
    fn both_that_a_slab_is_in_ask() {
        let Some((space, begin)) = used(SMALL_LEAST) else { return };
        let first = begin + UNITS - 2;
        assert_eq!(space.take(UNITS - 2, 1), Some(begin));
        assert_eq!(space.take(4, 1), Some(first));
        {
            let _guard = space.lock();
            space.give_at(begin, UNITS - 2, false);
        }
        space.pack(first, slab(4));
        assert!(asks(space, begin) && asks(space, begin + UNITS));
    }

    /// Only so many may: the others would be mappings that others need.
    #[test]
    fn none_far_in_asks() {
        let Some((space, begin)) = used(SMALL_LEAST) else { return };
        let far = space.aligned(0, UNITS).expect("far from the end") + PAGES * UNITS;
        assert_eq!(space.packed(far - 1, 1).count(), 1);
        assert_eq!(space.packed(far, 1).count(), 0);
        assert_eq!(space.packed(begin - 1, 2).count(), 2);
    }
}

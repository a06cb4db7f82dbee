//! Where objects live: a region of address space, handed out in units of 64 KiB.
//!
//! What a unit is, is found from an address by a subtraction and a shift: units follow each other, and so do their tags.
//! The region becomes accessible from the front, a step at a time, by [`self::map`]. Units that are given back stay
//! accessible, so that a late reader never faults; their pages go back to the system by [`self::purge`].
//!
//! Under the lock every store leaves a usable state: a run is taken by its bits, and the counts are estimates that a
//! forked child makes anew.

mod bits;
pub(crate) mod heap_error;
mod huge_pages;
pub mod large;
mod map;
pub(crate) mod purge;
mod runs;
pub(super) mod slab;

use crate::sys::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::sys::lock::{Guard, Lock};
use bits::Bits;
use huge_pages::Packed;
use map::{AHEAD, UNITS_MOST, layout};
use purge::Purging;
use slab::{OBJECT_BITS, Slab};

/// The bytes of a unit, and what units are aligned to.
pub(super) const UNIT: usize = if cfg!(thiscpu_model) { 4096 } else { 64 * 1024 };
/// The units of which the longest free run is remembered together.
const CHUNK: usize = if cfg!(thiscpu_model) { 64 } else { 1024 };

/// What a unit is. A slab of a class with a number of its own is that number, above 0.
pub type Tag = i32;
/// Nobody's.
pub const NOTHING: Tag = 0;
/// The beginning of a large block.
const LARGE: Tag = -1;
/// A slab of a cache that has no number of its own.
pub(super) const ANY_CACHE: Tag = -2;

/// What is known of the space. What fast paths read has a line of its own, with what changes as rarely.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Space {
    /// The address that is [`AHEAD`] units in front of unit 0, and as many tags in front of its tag, where there are tags to be read for all units there can
    /// be, and nobody watches; or [`NOWHERE`]. What fast paths read.
    origin_at_hand: AtomicUsize,
    /// The address of unit 0.
    base: AtomicUsize,
    /// How many units have tags, or 0 before the first.
    most: AtomicUsize,
    /// The address of the tag of unit 0.
    tags: AtomicUsize,
    /// The address of the first unit's slab.
    slabs: AtomicUsize,
    /// The address of the bits of its objects.
    object_bits: AtomicUsize,
    /// Where the region begins, and how many units it has room for.
    start: AtomicUsize,
    limit: AtomicUsize,
    lock: Lock,
    /// How many units are accessible, or passed by.
    open: AtomicUsize,
    /// Whether there are tags to be read for all units there can be.
    has_all_tags: AtomicBool,
    /// How far slabs, and their objects' bits, are accessible, from where the region begins.
    slabs_open: AtomicUsize,
    object_bits_open: AtomicUsize,
    /// Whether tags for all units are mapped, or just being, or were when this process was forked.
    knowing: AtomicBool,
    /// No unit at or above was ever used.
    high: AtomicUsize,
    used: AtomicUsize,
    used_max: AtomicUsize,
    /// How many units were passed by; they count as used for ever.
    missing: AtomicUsize,
    /// How many free units may have pages.
    dirty: AtomicUsize,
    purging: Purging,
    packed: Packed,
}

/// What functions in assembly have to know of the space.
#[cfg(not(thiscpu_model))]
pub(crate) mod front {
    use core::mem::offset_of;

    pub use super::{NUMBERS, SPACE};
    use super::{Space, UNIT};

    /// Where the address that units and tags are counted from is, in it.
    pub const ORIGIN_AT_HAND: usize = offset_of!(Space, origin_at_hand);
    /// The bits of an address that say where in its unit it is.
    pub const UNIT_SHIFT: u32 = UNIT.trailing_zeros();
}

/// If units begin here, no address that there can be is in one, nor what often takes the place of an address.
const NOWHERE: usize = 0x9e37 << 48;

#[cfg(not(thiscpu_model))]
const _: () = assert!(core::mem::offset_of!(Space, lock) == 64, "fast paths have the first line");
/// How many units and what is counted like them there can be, which is what fast paths compare with.
pub const NUMBERS: usize = AHEAD + UNITS_MOST;
// As a part of instructions.
const _: () = assert!(NUMBERS <= i32::MAX as usize);

/// No memory was found, while free units were used by whoever drops their pages.
struct WhilePurged;

/// The space.
pub static SPACE: Space = Space::new();

/// The unit that holds an address, if that is in the space.
#[inline(always)]
fn unit_of(address: usize) -> Option<usize> {
    // Acquire: pairs with the Release in `tell`. What the others say was stored before.
    let most = SPACE.most.load(Acquire);
    let unit = address.wrapping_sub(SPACE.base.load(Relaxed)) / UNIT;
    (unit < most).then_some(unit)
}

/// What the unit that holds an address is.
#[inline(always)]
pub fn tag_of(address: usize) -> Tag {
    match unit_of(address) {
        // SAFETY: there is a tag for each unit below `most`.
        Some(unit) => unsafe { SPACE.tag_unchecked(unit) }.load(Relaxed) as Tag,
        None => NOTHING,
    }
}

/// As [`tag_of`], for fast paths: nothing while somebody watches, or where address space is scarce. How many units there can be is a constant, so there is one
/// word to load before the tag.
#[inline(always)]
pub fn tag_of_block(address: usize) -> Tag {
    // Acquire: pairs with the Release in `show_base`. There are tags from there on, and what came before `watch` is seen.
    let origin = SPACE.origin_at_hand.load(Acquire);
    let number = address.wrapping_sub(origin) / UNIT;
    if number < NUMBERS {
        let tag = origin + number * size_of::<Tag>();
        // SAFETY: there is a tag for each unit there can be, and 0 for what is ahead of them, to be read for ever.
        return unsafe { &*(tag as *const AtomicU32) }.load(Relaxed) as Tag;
    }
    NOTHING
}

/// Has [`tag_of_block`] say nothing from now on, so that whoever asks goes another way; or what there is. At first nobody
/// has asked for that, and it says nothing. Who begins to watch does not mind a few calls.
pub fn watch(is_watched: bool) {
    // Against the first tags, after which it is looked whether somebody watches.
    let _guard = SPACE.lock();
    IS_WATCHED.store(is_watched, Relaxed);
    SPACE.show_base();
}

static IS_WATCHED: AtomicBool = AtomicBool::new(true);

/// The bytes of units in use, the most of those there ever were, and the bytes of units whose pages the system has not got
/// back.
pub fn memory() -> [usize; 3] {
    // Relaxed: estimates.
    let used = SPACE.used.load(Relaxed);
    let with_pages = used + SPACE.dirty.load(Relaxed) + SPACE.idle();
    [used, SPACE.used_max.load(Relaxed), with_pages].map(|units| units * UNIT)
}

impl Space {
    const fn new() -> Space {
        Space {
            lock: Lock::new(),
            origin_at_hand: AtomicUsize::new(NOWHERE),
            base: AtomicUsize::new(NOWHERE),
            most: AtomicUsize::new(0),
            tags: AtomicUsize::new(0),
            slabs: AtomicUsize::new(0),
            object_bits: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            limit: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            has_all_tags: AtomicBool::new(false),
            slabs_open: AtomicUsize::new(0),
            object_bits_open: AtomicUsize::new(0),
            knowing: AtomicBool::new(false),
            high: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
            used_max: AtomicUsize::new(0),
            missing: AtomicUsize::new(0),
            dirty: AtomicUsize::new(0),
            purging: Purging::new(),
            packed: Packed::new(),
        }
    }

    /// # Safety
    ///
    /// `unit` is below `most`.
    #[inline(always)]
    unsafe fn tag_unchecked(&self, unit: usize) -> &'static AtomicU32 {
        // SAFETY: the tags begin there, one for each unit, accessible for ever.
        unsafe { &*((self.tags.load(Relaxed) + unit * size_of::<Tag>()) as *const AtomicU32) }
    }

    /// Says where fast paths find tags, if they do: what they load must be mapped for each unit that they may ask for. Under the lock.
    fn show_base(&self) {
        let is_begun = self.most.load(Relaxed) != 0;
        let is_shown = is_begun && self.has_all_tags.load(Relaxed) && !IS_WATCHED.load(Relaxed);
        let origin = if is_shown { self.base.load(Relaxed) - AHEAD * UNIT } else { NOWHERE };
        // Release: pairs with the Acquire in `tag_of_block`.
        self.origin_at_hand.store(origin, Release);
    }

    fn tag_word(&self, unit: usize) -> &'static AtomicU32 {
        assert!(unit < self.most.load(Relaxed));
        // SAFETY: just looked at.
        unsafe { self.tag_unchecked(unit) }
    }

    /// What a unit is.
    pub(super) fn tag(&self, unit: usize) -> Tag {
        // Acquire: pairs with the Release in `set_tag`.
        self.tag_word(unit).load(Acquire) as Tag
    }

    /// Says what a unit is, to whoever may look at what is known of it.
    fn set_tag(&self, unit: usize, tag: Tag) {
        // Release: pairs with the Acquire in `tag`.
        self.tag_word(unit).store(tag as u32, Release);
    }

    fn address(&self, unit: usize) -> usize {
        self.base.load(Relaxed) + unit * UNIT
    }

    /// What is known of the slab, or large block, that begins with a unit which was ever used.
    pub(super) fn slab(&self, unit: usize) -> &'static Slab {
        assert!(unit < self.high.load(Acquire));
        let slabs = self.slabs.load(Relaxed);
        // SAFETY: there is one for each unit, accessible for ever for those that were ever used; zero is one.
        unsafe { &*((slabs + unit * size_of::<Slab>()) as *const Slab) }
    }

    /// A bit for each object of the slab that begins with a unit which was ever used.
    fn object_bits(&self, unit: usize) -> Bits<'static> {
        assert!(unit < self.high.load(Acquire));
        let words = (self.object_bits.load(Relaxed) + unit * OBJECT_BITS) as *const AtomicU64;
        // SAFETY: as above.
        Bits(unsafe { core::slice::from_raw_parts(words, OBJECT_BITS / 8) })
    }

    /// Whether nothing was ever in it, nor is.
    fn is_unused(&self) -> bool {
        self.most.load(Relaxed) == 0
    }

    /// How many units were ever used.
    pub(super) fn high(&self) -> usize {
        self.high.load(Acquire)
    }

    fn bits(&self, offset: usize) -> Bits<'static> {
        let words = (self.start.load(Relaxed) + offset) as *const AtomicU64;
        // SAFETY: the words are there, accessible for ever for units that have tags, accessed through this only, and
        // zeros are a valid beginning.
        Bits(unsafe { core::slice::from_raw_parts(words, self.most.load(Relaxed) / 64) })
    }

    fn used_bits(&self) -> Bits<'static> {
        self.bits(layout(self.limit.load(Relaxed)).used)
    }

    /// The units that may hold anything, if they are free; if not it means nothing, but to who has just taken them.
    fn dirty_bits(&self) -> Bits<'static> {
        self.bits(layout(self.limit.load(Relaxed)).dirty)
    }

    fn lock(&self) -> Guard<'_> {
        let guard = self.lock.lock();
        if guard.first_in_generation && self.most.load(Relaxed) != 0 {
            // The fork may have come between the two.
            self.tell(self.most.load(Relaxed));
            let took_back = self.take_back_what_was_purged();
            if guard.left_behind || took_back {
                self.count_anew();
            }
        }
        guard
    }

    /// What a fork amid a change leaves behind is counts that are off.
    fn count_anew(&self) {
        let high = self.high.load(Relaxed);
        let (used, dirty) = (self.used_bits(), self.dirty_bits());
        let missing = self.missing.load(Relaxed);
        self.used.store(used.count(0, high).saturating_sub(missing), Relaxed);
        self.dirty.store(dirty.count_without(used, high), Relaxed);
    }

    /// Takes `count` units that follow each other, from a multiple of `align` on. The first; `None` if there is no
    /// memory.
    pub(super) fn take(&self, count: usize, align: usize) -> Option<usize> {
        self.take_found(count, || self.find_anywhere(count, align))
    }

    /// The same for who wants neighbours: `next`, behind the last that it has taken, if that is free and in the same neighbourhood;
    /// else such as are far from what others of its kind take.
    pub(super) fn take_beside(&self, next: usize, count: usize) -> Option<usize> {
        if self.has_neighbours(next, count) && self.extend(next, count).is_some() {
            return Some(next);
        }
        self.take_found(count, || self.find_apart(count))
    }

    /// Takes what `find` finds under the lock.
    fn take_found(&self, count: usize, find: impl Fn() -> Option<usize>) -> Option<usize> {
        match self.take_now(count, &find) {
            Err(WhilePurged) => {
                // What is missing may be what somebody is just dropping the pages of; in this turn nobody is.
                let _turn = self.purging.turn();
                self.take_now(count, &find).unwrap_or(None)
            }
            Ok(taken) => taken,
        }
    }

    /// The same where no unit that nobody needs is used for anything; else there may be memory that it does not see.
    fn take_now(
        &self,
        count: usize,
        find: impl Fn() -> Option<usize>,
    ) -> Result<Option<usize>, WhilePurged> {
        let _guard = self.lock();
        match self.begin().and_then(|()| find()) {
            None if self.purging.is_under_way() => Err(WhilePurged),
            None => Ok(None),
            Some(first) => {
                self.take_at(first, count);
                Ok(Some(first))
            }
        }
    }

    /// Takes the units behind a run too, if they are free.
    fn extend(&self, end: usize, count: usize) -> Option<()> {
        let _guard = self.lock();
        let (high, wanted) = (self.high.load(Relaxed), end.checked_add(count)?);
        let near = wanted.min(high);
        if self.used_bits().find(true, end.min(near), near) < near {
            return None;
        }
        if wanted > high {
            self.open_to(wanted).ok()?;
            // Release: pairs with the Acquire in `slab`; it is accessible.
            self.high.store(wanted, Release);
        }
        self.take_at(end, count);
        Some(())
    }

    /// Under the lock; they are free and accessible.
    fn take_at(&self, first: usize, count: usize) {
        self.raise_behind(first + count);
        // First: a fork after this loses them, and before it they are nobody's.
        self.used_bits().put(first, count, true);
        let dirty = self.dirty_bits().count(first, count);
        self.dirty.store(self.dirty.load(Relaxed).saturating_sub(dirty), Relaxed);
        let used = self.used.load(Relaxed) + count;
        self.used.store(used, Relaxed);
        self.used_max.store(self.used_max.load(Relaxed).max(used), Relaxed);
    }

    /// Gives units back, whose tags are [`NOTHING`] again. The next is [`self::purge::if_many`], without a lock.
    fn give(&self, first: usize, count: usize) {
        self.held().give(first, count);
    }

    /// The same together with a look at what they are.
    fn held(&self) -> Held<'_> {
        Held { space: self, _guard: self.lock() }
    }

    /// Under the lock: they are free, and dirty or all zero.
    fn give_at(&self, first: usize, count: usize, is_dirty: bool) {
        self.raise_around(first, count);
        self.dirty_bits().put(first, count, is_dirty);
        self.used_bits().put(first, count, false);
        if is_dirty {
            self.dirty.store(self.dirty.load(Relaxed) + count, Relaxed);
        }
    }
}

/// A space whose lock is held.
struct Held<'a> {
    space: &'a Space,
    _guard: Guard<'a>,
}

impl Held<'_> {
    /// As [`Space::give`].
    fn give(&self, first: usize, count: usize) {
        let space = self.space;
        // First: a child that is forked in between counts them all the same.
        space.give_packed(first, count);
        space.give_at(first, count, true);
        space.used.store(space.used.load(Relaxed).saturating_sub(count), Relaxed);
    }
}

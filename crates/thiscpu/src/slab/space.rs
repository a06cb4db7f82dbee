//! Where objects live: one reservation of address space, handed out in units of 64 KiB.
//!
//! ```text
//! | tag of each unit | used | dirty | slab of each unit | unit 0 | unit 1 | ... |
//! ```
//!
//! The reservation is as large as the system lets it be, up to a tebibyte, and costs nothing until it is used: it becomes
//! accessible from the front, a step at a time. What a unit is, is found from an address by a subtraction
//! and a shift. Units that are given back stay accessible, so that a late reader never faults; their pages go back to the
//! system by [`super::purge`].
//!
//! Under the lock every store leaves a usable state: a run is taken by its bits, and the counts are estimates that a
//! forked child makes anew.

use super::bits::Bits;
use super::objects::Slab;
use crate::sys::atomic::{
    AtomicBool, AtomicU8, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::sys::lock::{Guard, Lock};
use crate::sys::machine::{Here, Machine as _};

/// The bytes of a unit, and what units are aligned to.
pub(crate) const UNIT: usize = if cfg!(thiscpu_model) { 4096 } else { 64 * 1024 };
const UNITS_MOST: usize = if cfg!(thiscpu_model) { 64 } else { 1 << 24 };
const UNITS_LEAST: usize = if cfg!(thiscpu_model) { 64 } else { 1 << 8 };
/// At least so many units become accessible at once.
const STEP: usize = 64;
/// The largest page of these machines.
const PAGE_MAX: usize = if cfg!(thiscpu_model) { 4096 } else { 64 * 1024 };

/// What a unit is: nobody's.
pub const NOTHING: u8 = 0;
/// What a unit is: the beginning of a large block.
pub(crate) const LARGE: u8 = 255;
/// What a unit is: a slab of a cache that has no number of its own.
pub(crate) const ANY_CACHE: u8 = 254;

pub(super) struct Space {
    lock: Lock,
    /// The address of unit 0. Read by fast paths, as the next three are.
    base: AtomicUsize,
    /// How many units there can be, or 0 before the first.
    most: AtomicUsize,
    /// The same; 0 while somebody watches.
    unwatched: AtomicUsize,
    /// The address of the tags.
    tags: AtomicUsize,
    /// The address of the first unit's slab.
    slabs: AtomicUsize,
    /// How many units are accessible.
    open: AtomicUsize,
    /// No unit at or above was ever used.
    high: AtomicUsize,
    /// No unit below is free.
    first_free: AtomicUsize,
    pub(super) used: AtomicUsize,
    pub(super) used_max: AtomicUsize,
    /// How many free units may have pages.
    pub(super) dirty: AtomicUsize,
    /// Since when those are more than are wanted; 0 while they are not.
    pub(super) dirty_since: AtomicU64,
}

pub(super) static SPACE: Space = Space {
    lock: Lock::new(),
    base: AtomicUsize::new(0),
    most: AtomicUsize::new(0),
    unwatched: AtomicUsize::new(0),
    tags: AtomicUsize::new(0),
    slabs: AtomicUsize::new(0),
    open: AtomicUsize::new(0),
    high: AtomicUsize::new(0),
    first_free: AtomicUsize::new(0),
    used: AtomicUsize::new(0),
    used_max: AtomicUsize::new(0),
    dirty: AtomicUsize::new(0),
    dirty_since: AtomicU64::new(0),
};

/// Where the parts of a reservation for so many units are, from its beginning.
struct Layout {
    used: usize,
    dirty: usize,
    slabs: usize,
    end: usize,
}

const fn layout(units: usize) -> Layout {
    let used = units.next_multiple_of(PAGE_MAX);
    let bits = (units / 8).next_multiple_of(PAGE_MAX);
    let slabs = used + 2 * bits;
    let end = slabs + (units * size_of::<Slab>()).next_multiple_of(PAGE_MAX);
    Layout { used, dirty: used + bits, slabs, end }
}

/// The unit that holds an address, if that is in the space.
#[inline(always)]
pub(crate) fn unit_of(address: usize) -> Option<usize> {
    // Relaxed: who asks has got the address, or another from here, by way of a lock that was taken after these were
    // stored; who has not is answered `None`.
    let unit = address.wrapping_sub(SPACE.base.load(Relaxed)) / UNIT;
    (unit < SPACE.most.load(Relaxed)).then_some(unit)
}

/// What the unit that holds an address is.
#[inline(always)]
pub fn tag_of(address: usize) -> u8 {
    match unit_of(address) {
        // SAFETY: there is a tag for each unit below `most`.
        Some(unit) => unsafe { SPACE.tag_unchecked(unit) }.load(Relaxed),
        None => NOTHING,
    }
}

/// As [`tag_of`], for fast paths: nothing once somebody watches.
#[inline(always)]
pub fn tag_of_block(address: usize) -> u8 {
    // Relaxed: as in `unit_of`; and who begins to watch does not mind a few calls.
    let unit = address.wrapping_sub(SPACE.base.load(Relaxed)) / UNIT;
    if unit < SPACE.unwatched.load(Relaxed) {
        // SAFETY: there is a tag for each unit below that.
        return unsafe { SPACE.tag_unchecked(unit) }.load(Relaxed);
    }
    NOTHING
}

/// Has [`tag_of_block`] say nothing from now on, so that whoever asks goes another way.
pub fn watch() {
    // Against the first use, which looks whether somebody watches and then says what is not watched.
    let _guard = SPACE.lock();
    IS_WATCHED.store(true, Relaxed);
    SPACE.unwatched.store(0, Relaxed);
}

static IS_WATCHED: AtomicBool = AtomicBool::new(false);

/// The bytes of units in use, the most of those there ever were, and the bytes of units whose pages the system has not got
/// back.
pub fn memory() -> [usize; 3] {
    // Relaxed: estimates.
    let used = SPACE.used.load(Relaxed);
    [used, SPACE.used_max.load(Relaxed), used + SPACE.dirty.load(Relaxed)].map(|units| units * UNIT)
}

/// A run of units that was taken.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) first: usize,
    /// Whether all of it is zero.
    pub(super) is_clean: bool,
}

impl Space {
    /// # Safety
    ///
    /// `unit` is below `most`. Its page is accessible if unit is below `open`; else it may read as anything but
    /// a fault is not possible, because all tags become accessible at the start.
    #[inline(always)]
    unsafe fn tag_unchecked(&self, unit: usize) -> &'static AtomicU8 {
        // SAFETY: the tags begin there, one for each unit, accessible for ever.
        unsafe { &*((self.tags.load(Relaxed) + unit) as *const AtomicU8) }
    }

    pub(super) fn tag(&self, unit: usize) -> &'static AtomicU8 {
        assert!(unit < self.most.load(Relaxed));
        // SAFETY: just looked at.
        unsafe { self.tag_unchecked(unit) }
    }

    pub(super) fn address(&self, unit: usize) -> usize {
        self.base.load(Relaxed) + unit * UNIT
    }

    /// What is known of the slab, or large block, that begins with a unit which was ever used.
    pub(super) fn slab(&self, unit: usize) -> &'static Slab {
        assert!(unit < self.high.load(Acquire));
        let slabs = self.slabs.load(Relaxed);
        // SAFETY: there is one for each unit, accessible for ever for those that were ever used; zero is one.
        unsafe { &*((slabs + unit * size_of::<Slab>()) as *const Slab) }
    }

    /// How many units were ever used.
    pub(super) fn high(&self) -> usize {
        self.high.load(Acquire)
    }

    fn bits(&self, offset: usize) -> Bits<'static> {
        let words = (self.tags.load(Relaxed) + offset) as *const AtomicU64;
        // SAFETY: the words are there, accessible for ever for units that are, accessed through this only, and
        // zeros are a valid beginning.
        Bits(unsafe { core::slice::from_raw_parts(words, self.open.load(Relaxed).div_ceil(64)) })
    }

    pub(super) fn used_bits(&self) -> Bits<'static> {
        self.bits(layout(self.most.load(Relaxed)).used)
    }

    pub(super) fn dirty_bits(&self) -> Bits<'static> {
        self.bits(layout(self.most.load(Relaxed)).dirty)
    }

    pub(super) fn lock(&self) -> Guard<'_> {
        let guard = self.lock.lock();
        if guard.left_behind && self.most.load(Relaxed) != 0 {
            self.count_anew();
        }
        guard
    }

    /// What a fork amid a change leaves behind is counts that are off.
    fn count_anew(&self) {
        let high = self.high.load(Relaxed);
        self.used.store(self.used_bits().count(high), Relaxed);
        self.dirty.store(self.dirty_bits().count(high), Relaxed);
        self.first_free.store(0, Relaxed);
    }

    /// Takes `count` units that follow each other. `None` if there is no memory.
    pub(super) fn take(&self, count: usize) -> Option<Run> {
        let _guard = self.lock();
        self.reserve()?;
        let first = match self.find(count) {
            Some(first) => first,
            None => self.find_at_end(count)?,
        };
        self.take_at(first, count)
    }

    /// Takes the units behind a run too, if they are free.
    pub(super) fn extend(&self, end: usize, count: usize) -> Option<Run> {
        let _guard = self.lock();
        let high = self.high.load(Relaxed);
        if self.used_bits().find(true, end.min(high), (end + count).min(high))
            < high.min(end + count)
        {
            return None;
        }
        if end + count > high {
            self.make_accessible(end + count)?;
        }
        self.take_at(end, count)
    }

    /// Under the lock; they are free and accessible.
    fn take_at(&self, first: usize, count: usize) -> Option<Run> {
        if first == self.first_free.load(Relaxed) {
            self.first_free.store(first + count, Relaxed);
        }
        // First: a fork after this loses them, and before it they are nobody's.
        self.used_bits().put(first, count, true);
        let dirty = self.dirty_bits().put(first, count, false);
        self.dirty.store(self.dirty.load(Relaxed).saturating_sub(dirty), Relaxed);
        let used = self.used.load(Relaxed) + count;
        self.used.store(used, Relaxed);
        self.used_max.store(self.used_max.load(Relaxed).max(used), Relaxed);
        self.calm();
        Some(Run { first, is_clean: dirty == 0 })
    }

    /// Gives units back, whose tags are [`NOTHING`] again.
    pub(super) fn give(&self, first: usize, count: usize) {
        let _guard = self.lock();
        let dirty = self.dirty_bits().put(first, count, true);
        self.dirty.store(self.dirty.load(Relaxed) + dirty, Relaxed);
        self.used_bits().put(first, count, false);
        self.used.store(self.used.load(Relaxed).saturating_sub(count), Relaxed);
        self.first_free.store(self.first_free.load(Relaxed).min(first), Relaxed);
        self.purge_if_many();
    }

    /// The first free run that is long enough, below `high`.
    fn find(&self, count: usize) -> Option<usize> {
        let (used, high) = (self.used_bits(), self.high.load(Relaxed));
        let mut at = used.find(false, self.first_free.load(Relaxed), high);
        self.first_free.store(at, Relaxed);
        while at + count <= high {
            let end = used.find(true, at, at + count);
            if end == at + count {
                return Some(at);
            }
            at = used.find(false, end, high);
        }
        None
    }

    /// Where a run begins that goes beyond what was ever used.
    fn find_at_end(&self, count: usize) -> Option<usize> {
        let high = self.high.load(Relaxed);
        let mut first = high;
        while first > 0 && !self.used_bits().has(first - 1) {
            first -= 1;
        }
        self.make_accessible(first.checked_add(count)?)?;
        Some(first)
    }

    /// Makes units below `end` accessible, and those a step beyond.
    fn make_accessible(&self, end: usize) -> Option<()> {
        let (open, most) = (self.open.load(Relaxed), self.most.load(Relaxed));
        if end > most {
            return None;
        }
        if end > open {
            let wanted = end.max(open + open / 16).next_multiple_of(STEP).min(most);
            self.open_to(wanted).or_else(|_| self.open_to(end)).ok()?;
        }
        // Release: pairs with the Acquire in `slab`; it is accessible.
        self.high.store(self.high.load(Relaxed).max(end), Release);
        Some(())
    }

    fn open_to(&self, end: usize) -> Result<(), i32> {
        let layout = layout(self.most.load(Relaxed));
        let start = self.tags.load(Relaxed);
        let to_page = |bytes: usize| bytes.next_multiple_of(PAGE_MAX);
        Here::open(start + layout.used, to_page(end.div_ceil(8)))?;
        Here::open(start + layout.dirty, to_page(end.div_ceil(8)))?;
        Here::open(start + layout.slabs, to_page(end * size_of::<Slab>()))?;
        // Not what is open: a program may have protected pages of its own there.
        let open = self.open.load(Relaxed);
        Here::open(self.address(open), (end - open) * UNIT)?;
        self.open.store(end, Relaxed);
        Ok(())
    }

    /// Reserves the address space, if that has not been done.
    fn reserve(&self) -> Option<()> {
        if self.most.load(Relaxed) != 0 {
            return Some(());
        }
        let (base, units) = reserve_most()?;
        let start = base - layout(units).end;
        Here::open(start, layout(units).used).ok()?;
        self.tags.store(start, Relaxed);
        self.slabs.store(start + layout(units).slabs, Relaxed);
        self.base.store(base, Relaxed);
        // Release: what an address is, is asked of a unit below this.
        self.most.store(units, Release);
        if !IS_WATCHED.load(Relaxed) {
            self.unwatched.store(units, Release);
        }
        Some(())
    }
}

/// As many units as there is address space for. Where that is limited a quarter of it, because programs need some
/// for themselves.
fn reserve_most() -> Option<(usize, usize)> {
    let reserve = |units| {
        let before = layout(units).end;
        Here::reserve(before, units * UNIT, UNIT).ok().map(|base| (base, units))
    };
    let mut units = UNITS_MOST;
    if let Some(reserved) = reserve(units) {
        return Some(reserved);
    }
    while units > UNITS_LEAST {
        units /= 2;
        if let Some((base, _)) = reserve(units) {
            let before = layout(units).end;
            // SAFETY: just reserved, and nobody's.
            unsafe { Here::unmap(base - before, before + units * UNIT) };
            return reserve((units / 4).max(UNITS_LEAST));
        }
    }
    None
}

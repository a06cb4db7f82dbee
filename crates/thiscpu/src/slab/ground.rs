//! What of the space is mapped: nothing is reserved, so a limit on address space can be used nearly whole.
//!
//! ```text
//! | longest runs | used | dirty | tag of each unit | slab of each unit | its objects' bits | unit 0 | unit 1 | ... |
//! ```
//!
//! Each part has its place from the first use on, in a region that is picked at random where hardly a program has anything, and is mapped from
//! its beginning, in steps, at that place and only if nothing else is there (`MAP_FIXED_NOREPLACE`). Where something is, the
//! units in its way count as used for ever.
//!
//! A fork amid a step leaves mappings to the child that it knows nothing of: it finds them in the way, and passes
//! by; they were never touched.

use super::entry::random_bits;
use super::objects::{OBJECT_BITS, Slab};
use super::space::{CHUNK, Space, Tag, UNIT, is_watched};
use crate::sys::atomic::{
    AtomicUsize,
    Ordering::{Relaxed, Release},
};
use crate::sys::machine::{Here, Machine as _};

const UNITS_MOST: usize = if cfg!(thiscpu_model) { 64 } else { 1 << 24 };
const UNITS_LEAST: usize = if cfg!(thiscpu_model) { 64 } else { 1 << 8 };
/// So many units have tags from the beginning, and all once there are more.
const UNITS_FIRST: usize = if cfg!(thiscpu_model) { 64 } else { 1 << 16 };
/// At least so many units become accessible at once, if there is room.
const STEP: usize = 16;
/// What is in the way of more than so many, a GiB, is not passed by for them: it may be far away.
const PASSING_MOST: usize = (1 << 30) / UNIT;
/// The largest page of these machines.
const PAGE_MAX: usize = if cfg!(thiscpu_model) { 4096 } else { 64 * 1024 };

/// Where the region is, preferably. Between programs' own addresses and where the kernel maps what has no place; and, for tools that
/// keep high addresses to themselves, lower. Each with the size of what it is picked from.
const REGIONS: [(usize, usize); 2] = [(32 << 40, 32 << 40), (2 << 40, 4 << 40)];
/// What the region is aligned to there.
const REGION_ALIGN: usize = 1 << 30;

/// Where the parts of a region for so many units are, from its beginning, which is that of the longest runs.
pub(super) struct Layout {
    pub(super) used: usize,
    pub(super) dirty: usize,
    tags: usize,
    slabs: usize,
    object_bits: usize,
    units: usize,
}

pub(super) const fn layout(units: usize) -> Layout {
    let bits = to_page(units / 8);
    let used = to_page(units.div_ceil(CHUNK) * size_of::<u32>());
    let tags = used + 2 * bits;
    let slabs = tags + to_page(units * size_of::<Tag>());
    let object_bits = slabs + to_page(units * size_of::<Slab>());
    Layout {
        used,
        dirty: used + bits,
        tags,
        slabs,
        object_bits,
        units: object_bits + to_page(units * OBJECT_BITS),
    }
}

impl Layout {
    /// What has to be mapped for so many units to have tags, where so many have: beginnings and ends.
    const fn known(&self, from: usize, to: usize) -> [(usize, usize); 4] {
        let longest = if from == 0 { (0, self.used) } else { (0, 0) };
        let bits = (to_page(from / 8), to_page(to / 8));
        let tags = (to_page(from * size_of::<Tag>()), to_page(to * size_of::<Tag>()));
        [
            longest,
            (self.used + bits.0, self.used + bits.1),
            (self.dirty + bits.0, self.dirty + bits.1),
            (self.tags + tags.0, self.tags + tags.1),
        ]
    }
}

const fn to_page(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE_MAX)
}

/// Maps all of it, or nothing.
fn map_all(start: usize, parts: &[(usize, usize)]) -> Result<(), i32> {
    let size = |&(from, to): &(usize, usize)| to - from;
    for (done, part) in parts.iter().enumerate() {
        if size(part) == 0 {
            continue;
        }
        if let Err(error) = Here::map_at(start + part.0, size(part)) {
            for part in parts[..done].iter().filter(|part| size(part) > 0) {
                // SAFETY: just mapped, and nobody's.
                unsafe { Here::unmap(start + part.0, size(part)) };
            }
            return Err(error);
        }
    }
    Ok(())
}

impl Space {
    /// Has the first parts mapped, if that has not been done. `None` if that cannot be, and then nothing is.
    pub(super) fn begin(&self) -> Option<()> {
        if self.most.load(Relaxed) != 0 {
            return Some(());
        }
        if !cfg!(thiscpu_model) {
            for (from, size) in REGIONS {
                let place = random_bits().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                let start = from + place as usize * REGION_ALIGN % size;
                if self.begin_at(start, UNITS_MOST).is_some() {
                    return Some(());
                }
            }
        }
        // The least first: where there is not even that much, as a limit may have it, the others need not be tried.
        Here::gap(layout(UNITS_LEAST).units, UNIT).ok()?;
        let halves = core::iter::successors(Some(UNITS_MOST), |units| Some(units / 2));
        halves.take_while(|&units| units >= UNITS_LEAST).find_map(|units| {
            let start = Here::gap(layout(units).units + units * UNIT, UNIT).ok()?;
            self.begin_at(start, units)
        })
    }

    fn begin_at(&self, start: usize, units: usize) -> Option<()> {
        let (layout, first) = (layout(units), units.min(UNITS_FIRST));
        map_all(start, &layout.known(0, first)).ok()?;
        self.start.store(start, Relaxed);
        self.tags.store(start + layout.tags, Relaxed);
        self.slabs.store(start + layout.slabs, Relaxed);
        self.object_bits.store(start + layout.object_bits, Relaxed);
        self.base.store(start + layout.units, Relaxed);
        self.limit.store(units, Relaxed);
        self.tell(first);
        Some(())
    }

    /// So many units have tags.
    pub(super) fn tell(&self, most: usize) {
        // Release, both: what an address is, is asked of a unit below this.
        self.most.store(most, Release);
        if !is_watched() {
            self.unwatched.store(most, Release);
        }
    }

    /// Makes units at the end accessible, for `count` that follow each other and begin at a multiple of `align`. The first.
    pub(super) fn find_at_end(&self, count: usize, align: usize) -> Option<usize> {
        let mut gap = STEP;
        loop {
            let high = self.high.load(Relaxed);
            let tail = self.used_bits().after_last(high);
            let first = self.aligned(tail, align)?;
            let end = first.checked_add(count)?;
            match self.open_to(end) {
                Ok(()) => {
                    self.raise(tail, end - tail);
                    // Release: pairs with the Acquire in `slab`; it is accessible.
                    self.high.store(high.max(end), Release);
                    return Some(first);
                }
                Err(libc::EEXIST) if count <= PASSING_MOST => {
                    self.open_what_is_free(end);
                    self.skip(gap)?;
                }
                Err(_) => return None,
            }
            gap *= 2;
        }
    }

    /// Makes units from the last used one on accessible.
    pub(super) fn open_to(&self, end: usize) -> Result<(), i32> {
        let open = self.open.load(Relaxed);
        if end <= open {
            return Ok(());
        }
        self.know(end)?;
        let wanted = end.max(open + open / 16).next_multiple_of(STEP).min(self.most.load(Relaxed));
        self.open_exactly(wanted).or_else(|_| self.open_exactly(end))
    }

    /// Has tags for all units if it has not for so many.
    fn know(&self, end: usize) -> Result<(), i32> {
        let (most, limit) = (self.most.load(Relaxed), self.limit.load(Relaxed));
        if end > limit {
            return Err(libc::ENOMEM);
        }
        if end > most {
            let parts = layout(limit).known(most, limit);
            // What is in the way here cannot be passed by: it would have to be an array's.
            map_all(self.start.load(Relaxed), &parts).map_err(|_| libc::ENOMEM)?;
            self.tell(limit);
        }
        Ok(())
    }

    fn open_exactly(&self, end: usize) -> Result<(), i32> {
        let open = self.open.load(Relaxed);
        let layout = layout(self.limit.load(Relaxed));
        // The page of the first is that of the last one before, or that was passed by.
        let part = |is_open: &AtomicUsize, place: usize, bytes: usize| {
            let from = is_open.load(Relaxed).max((place + open * bytes) / PAGE_MAX * PAGE_MAX);
            (from, to_page(place + end * bytes).max(from))
        };
        let slabs = part(&self.slabs_open, layout.slabs, size_of::<Slab>());
        let object_bits = part(&self.object_bits_open, layout.object_bits, OBJECT_BITS);
        // Only what is new: a program may have protected pages of its own before it.
        let units = (layout.units + open * UNIT, layout.units + end * UNIT);
        map_all(self.start.load(Relaxed), &[slabs, object_bits, units])?;
        self.slabs_open.store(slabs.1, Relaxed);
        self.object_bits_open.store(object_bits.1, Relaxed);
        self.open.store(end, Relaxed);
        Ok(())
    }

    /// Makes units accessible up to where something is in the way, about.
    fn open_what_is_free(&self, end: usize) {
        let mut step = (end - self.open.load(Relaxed)).next_power_of_two();
        while step > 0 {
            // It is tried with less.
            let _ = self.open_exactly(end.min(self.open.load(Relaxed) + step));
            step /= 2;
        }
    }

    /// Passes by so many units that are not accessible, because something else is mapped there.
    fn skip(&self, count: usize) -> Option<()> {
        let open = self.open.load(Relaxed);
        let end = open + count;
        self.know(end).ok()?;
        let used = self.used_bits();
        let tail = used.after_last(self.high.load(Relaxed));
        self.raise(tail, open.saturating_sub(tail));
        // First: what a fork after this leaves open is never handed out.
        let missing = used.put(open, count, true);
        self.missing.store(self.missing.load(Relaxed) + missing, Relaxed);
        self.open.store(end, Relaxed);
        self.high.store(end, Release);
        Some(())
    }

    /// The first unit from one on whose address is a multiple of so many units.
    pub(super) fn aligned(&self, unit: usize, align: usize) -> Option<usize> {
        let before = self.base.load(Relaxed) / UNIT;
        Some((before + unit).checked_next_multiple_of(align)? - before)
    }
}

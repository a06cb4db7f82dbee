//! What of the space is mapped: nothing is reserved where a limit might want it, so a limit on address space can be used nearly whole.
//!
//! ```text
//! | longest runs | used | dirty | slab of each unit | its objects' bits | tag of each unit | unit 0 | unit 1 | ... |
//! ```
//!
//! Each part has its place from the first use on, in a region that is picked at random where hardly a program has anything, and is mapped from
//! its beginning, in steps, at that place and only if nothing else is there (`MAP_FIXED_NOREPLACE`). Where something is, the
//! units in its way count as used for ever.
//!
//! A fork amid a step leaves mappings to the child that it knows nothing of: it finds units in the way, and passes
//! by; they were never touched. Arrays cannot be passed by: the child finds it written down that they were being mapped, and uses them.

use super::slab::{OBJECT_BITS, Slab};
use super::{CHUNK, Space, Tag, UNIT};
use crate::slab::lane::encoding::random_bits;
use crate::sys::Host;
use crate::sys::atomic::Ordering::{Relaxed, Release};
use crate::sys::machine::Machine as _;

/// How many units there can be.
pub(super) const UNITS_MOST: usize = if cfg!(thiscpu_model) { 64 } else { 1 << 24 };
const UNITS_LEAST: usize = if cfg!(thiscpu_model) { 64 } else { 1 << 8 };
/// So many units have tags from the beginning, and all once there are more.
const UNITS_FIRST: usize = if cfg!(thiscpu_model) { 64 } else { 1 << 16 };
/// Where there is room for so many units, 64 GiB of them, tags are as far in front of unit 0 as if it was for all there can be.
const UNITS_ROOMY: usize = if cfg!(thiscpu_model) { 64 } else { 1 << 20 };
/// So much address space has to be had for 64 MiB of it to be mapped for the tags of units that are not there yet.
const ROOM: usize = 4 << 30;
/// At least so many units become accessible at once, if there is room.
const STEP: usize = 16;
/// What is in the way of a call further away than so many, a GiB, is not passed by.
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
    let slabs = used + 2 * bits;
    let object_bits = slabs + to_page(units * size_of::<Slab>());
    let tags = object_bits + to_page(units * OBJECT_BITS);
    Layout {
        used,
        dirty: used + bits,
        tags,
        slabs,
        object_bits,
        units: tags + if units >= UNITS_ROOMY { TAGS_BYTES } else { tags_to(units) },
    }
}

impl Layout {
    /// What has to be mapped for so many units to have tags, where so many have: beginnings and ends.
    const fn known(&self, from: usize, to: usize) -> [(usize, usize); 4] {
        let longest = if from == 0 { (0, self.used) } else { (0, 0) };
        let bits = (to_page(from / 8), to_page(to / 8));
        let tags = (if from == 0 { 0 } else { tags_to(from) }, tags_to(to));
        [
            longest,
            (self.used + bits.0, self.used + bits.1),
            (self.dirty + bits.0, self.dirty + bits.1),
            (self.tags + tags.0, self.tags + tags.1),
        ]
    }

    /// Has zeros for the tags of all units there can be, where so many have some, so that fast paths may ask for any. Whether they may: not where address space
    /// is scarce, because what is mapped for that is gone for other things.
    fn map_all_tags(&self, start: usize, from: usize) -> bool {
        let missing = (self.tags + tags_to(from), self.tags + TAGS_BYTES);
        if self.units < missing.1 {
            return false;
        }
        let map = || Host::map_zeros_at(start + missing.0, size(&missing));
        size(&missing) == 0 || (Host::gap(ROOM, UNIT).is_ok() && map().is_ok())
    }
}

/// What is in front of unit 0 is counted in units too: tags begin with zeros for as many as the tags themselves fill. So where a tag is and what it is about
/// are found from the same address, and instructions need no displacement.
pub(super) const AHEAD: usize = UNITS_MOST * size_of::<Tag>() / UNIT + 1;
/// From the tags to unit 0, unless there is room for a few units only.
const TAGS_BYTES: usize = AHEAD * UNIT;
const _: () = assert!(tags_to(UNITS_MOST) <= TAGS_BYTES && TAGS_BYTES.is_multiple_of(PAGE_MAX));

/// How far the tags of so many units go.
const fn tags_to(units: usize) -> usize {
    to_page((AHEAD + units) * size_of::<Tag>())
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
fn map_the_rest(start: usize, parts: &[(usize, usize)]) -> Result<(), i32> {
    for part in parts.iter().filter(|part| size(part) > 0) {
        match Host::map_at(start + part.0, size(part)) {
            Err(libc::EEXIST) if Host::is_mapped(start + part.0, size(part)) => {}
            mapped => mapped?,
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
        Host::gap(layout(UNITS_LEAST).units, UNIT).ok()?;
        let halves = core::iter::successors(Some(UNITS_MOST), |units| Some(units / 2));
        halves.take_while(|&units| units >= UNITS_LEAST).find_map(|units| self.begin_with(units))
    }

    /// The same for so many units, anywhere.
    pub(super) fn begin_with(&self, units: usize) -> Option<()> {
        self.begin_at(Host::gap(layout(units).units + units * UNIT, UNIT).ok()?, units)
    }

    fn begin_at(&self, start: usize, units: usize) -> Option<()> {
        let (layout, first) = (layout(units), units.min(UNITS_FIRST));
        map_all(start, &layout.known(0, first)).ok()?;
        self.start.store(start, Relaxed);
        self.tags.store(start + layout.tags + AHEAD * size_of::<Tag>(), Relaxed);
        self.slabs.store(start + layout.slabs, Relaxed);
        self.object_bits.store(start + layout.object_bits, Relaxed);
        self.base.store(start + layout.units, Relaxed);
        self.limit.store(units, Relaxed);
        self.has_all_tags.store(layout.map_all_tags(start, first), Relaxed);
        self.tell(first);
        Some(())
    }

    /// So many units have tags.
    pub(super) fn tell(&self, most: usize) {
        // Release: what an address is, is asked of a unit below this.
        self.most.store(most, Release);
        // In a child too: the fork may have come between the two stores.
        self.show_base();
    }

    /// Makes units at the end accessible, for `count` that follow each other and begin at a multiple of `align`. The first. Where
    /// that cannot be, what was made accessible on the way is unmapped.
    pub(super) fn find_at_end(&self, count: usize, align: usize) -> Option<usize> {
        let mut gap = STEP;
        loop {
            let high = self.high.load(Relaxed);
            let tail = self.used_bits().after_last(0, high);
            let first = self.aligned(tail, align)?;
            let end = first.checked_add(count)?;
            match self.open_to(end) {
                Ok(()) => {
                    self.raise(tail, end);
                    // Release: pairs with the Acquire in `slab`; it is accessible.
                    self.high.store(high.max(end), Release);
                    return Some(first);
                }
                Err(libc::EEXIST) => self.pass_by(end, count, gap)?,
                Err(_) => return None,
            }
            gap *= 2;
        }
    }

    /// Makes accessible what is before something else that is mapped before `end`, and passes by that, so that `count` may be
    /// behind it; or changes nothing.
    fn pass_by(&self, end: usize, count: usize, gap: usize) -> Option<()> {
        let before = self.opened();
        let passed = || {
            let near = end.min(before[0] + PASSING_MOST);
            self.open_what_is_free(near).ok()?;
            if near < end && self.open.load(Relaxed) == near {
                return None;
            }
            // Where a limit leaves too little for what is wanted, what was opened for it is not kept.
            Host::gap(count * UNIT, UNIT).ok()?;
            self.skip(gap)
        };
        passed().or_else(|| {
            self.close_to(before);
            None
        })
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
            let (start, mut parts) = (self.start.load(Relaxed), layout(limit).known(most, limit));
            let [.., tags] = &mut parts;
            let has_all_tags = self.has_all_tags.load(Relaxed);
            let readable = if has_all_tags { core::mem::take(tags) } else { (0, 0) };
            let mapped = if self.knowing.load(Relaxed) {
                map_the_rest(start, &parts)
            } else {
                // First: it is for a child that is forked from here on, until there are tags for all or nothing is mapped.
                self.knowing.store(true, Relaxed);
                map_all(start, &parts).inspect_err(|_| self.knowing.store(false, Relaxed))
            };
            // What is in the way here cannot be passed by: it would have to be an array's.
            mapped.map_err(|_| libc::ENOMEM)?;
            // Last: if they cannot be had the others are found mapped the next time, and these have not become data for nothing.
            if has_all_tags && Host::open(start + readable.0, size(&readable)).is_err() {
                return Err(libc::ENOMEM);
            }
            if limit == UNITS_MOST {
                self.has_all_tags.store(true, Relaxed);
            }
            self.tell(limit);
        }
        Ok(())
    }

    fn open_exactly(&self, end: usize) -> Result<(), i32> {
        let layout = layout(self.limit.load(Relaxed));
        let before = self.opened();
        let [units, slabs, object_bits] = self.places(before);
        // Only what is new: a program may have protected pages of its own before it.
        let part = |from: usize, to: usize| (from, to_page(to).max(from));
        let slabs = part(slabs, layout.slabs + end * size_of::<Slab>());
        let object_bits = part(object_bits, layout.object_bits + end * OBJECT_BITS);
        map_all(
            self.start.load(Relaxed),
            &[slabs, object_bits, (units, layout.units + end * UNIT)],
        )?;
        self.store_opened([end, slabs.1, object_bits.1]);
        Ok(())
    }

    /// How many units are accessible, and how far what is known of them.
    fn opened(&self) -> [usize; 3] {
        [&self.open, &self.slabs_open, &self.object_bits_open].map(|word| word.load(Relaxed))
    }

    fn store_opened(&self, [units, slabs, object_bits]: [usize; 3]) {
        self.slabs_open.store(slabs, Relaxed);
        self.object_bits_open.store(object_bits, Relaxed);
        self.open.store(units, Relaxed);
    }

    /// Where what is mapped next begins, of each of the three, where so much is accessible.
    fn places(&self, [open, slabs, object_bits]: [usize; 3]) -> [usize; 3] {
        let layout = layout(self.limit.load(Relaxed));
        // The page of the first is that of the last one before, or that was passed by.
        let page = |at: usize| at / PAGE_MAX * PAGE_MAX;
        [
            layout.units + open * UNIT,
            slabs.max(page(layout.slabs + open * size_of::<Slab>())),
            object_bits.max(page(layout.object_bits + open * OBJECT_BITS)),
        ]
    }

    /// Makes units accessible up to where something is in the way, about. Another error than that is one.
    fn open_what_is_free(&self, end: usize) -> Result<(), i32> {
        let mut step = (end - self.open.load(Relaxed)).next_power_of_two();
        while step > 0 {
            match self.open_exactly(end.min(self.open.load(Relaxed) + step)) {
                // It is tried with less.
                Ok(()) | Err(libc::EEXIST) => step /= 2,
                error => return error,
            }
        }
        Ok(())
    }

    /// Unmaps what became accessible since so much was, and nobody has: it is behind all that was ever used.
    fn close_to(&self, before: [usize; 3]) {
        let (start, layout) = (self.start.load(Relaxed), layout(self.limit.load(Relaxed)));
        let [open, slabs, object_bits] = self.opened();
        let ends = [layout.units + open * UNIT, slabs, object_bits];
        // First: what a fork after this leaves mapped is in the child's way, and is passed by.
        self.store_opened(before);
        for (from, to) in self.places(before).into_iter().zip(ends).filter(|part| part.0 < part.1) {
            // SAFETY: mapped since then, each time from where that ended; and nobody's.
            unsafe { Host::unmap(start + from, to - from) };
        }
    }

    /// Passes by so many units that are not accessible, because something else is mapped there.
    fn skip(&self, count: usize) -> Option<()> {
        let open = self.open.load(Relaxed);
        let end = open + count;
        self.know(end).ok()?;
        let used = self.used_bits();
        let tail = used.after_last(0, self.high.load(Relaxed));
        self.raise(tail, open);
        // First: what a fork after this leaves open is never handed out.
        let missing = used.put(open, count, true);
        self.missing.store(self.missing.load(Relaxed) + missing, Relaxed);
        // Before `open`: a child that is forked in between finds the same in its way again, and passes by. The other way round it
        // would take what is passed by for accessible and unused. It may have less to pass by then: `high` stays.
        self.high.store(self.high.load(Relaxed).max(end), Release);
        self.open.store(end, Relaxed);
        Some(())
    }

    /// The first unit from one on whose address is a multiple of so many units.
    pub(super) fn aligned(&self, unit: usize, align: usize) -> Option<usize> {
        let before = self.base.load(Relaxed) / UNIT;
        Some((before + unit).checked_next_multiple_of(align)? - before)
    }
}

#[cfg(all(test, not(thiscpu_model)))]
mod tests {
    use super::*;

    /// A space that knows of the first units, and the arrays for all.
    fn begun() -> (&'static Space, [(usize, usize); 4]) {
        // A mapping of another test may come in between, where there was room for all units.
        let begin = |_| {
            let space: &'static Space = Box::leak(Box::new(Space::new()));
            space.begin().expect("there is memory");
            (space.limit.load(Relaxed) == UNITS_MOST).then_some(space)
        };
        let space = (0..10).find_map(begin).expect("there is room for all units");
        let (most, limit) = (space.most.load(Relaxed), space.limit.load(Relaxed));
        assert!(most < limit);
        (space, layout(limit).known(most, limit))
    }

    /// The same without tags for units that are not there.
    fn begun_where_room_is_scarce() -> (&'static Space, [(usize, usize); 4]) {
        let (space, parts) = begun();
        assert!(space.has_all_tags.swap(false, Relaxed), "there is address space");
        // SAFETY: mapped by this space, whose fast paths nobody uses.
        unsafe { Host::unmap(space.start.load(Relaxed) + parts[3].0, size(&parts[3])) };
        (space, parts)
    }

    fn map(space: &Space, part: (usize, usize)) {
        Host::map_at(space.start.load(Relaxed) + part.0, size(&part)).expect("nothing is there");
    }

    /// Whatever of them its parent had mapped at the fork.
    #[test]
    fn a_child_has_tags_for_all_units() {
        for mapped in 0..=4 {
            let (space, parts) = begun_where_room_is_scarce();
            space.knowing.store(true, Relaxed);
            parts[..mapped].iter().filter(|part| size(part) > 0).for_each(|&part| map(space, part));
            has_tags_for_all_units(space, mapped);
        }
    }

    /// Also where tags could be read before.
    #[test]
    fn a_child_has_tags_for_all_units_that_could_be_read() {
        for (mapped, are_opened) in [(0, false), (1, false), (2, false), (3, false), (3, true)] {
            let (space, parts) = begun();
            space.knowing.store(true, Relaxed);
            if are_opened {
                let start = space.start.load(Relaxed) + parts[3].0;
                assert_eq!(Host::open(start, size(&parts[3])), Ok(()));
            }
            parts[..mapped].iter().filter(|part| size(part) > 0).for_each(|&part| map(space, part));
            has_tags_for_all_units(space, mapped);
        }
    }

    fn has_tags_for_all_units(space: &Space, mapped: usize) {
        let last = space.limit.load(Relaxed);
        assert_eq!(space.know(last), Ok(()), "after {mapped} of the arrays");
        assert!(space.has_all_tags.load(Relaxed));
        space.set_tag(last - 1, 5);
        assert_eq!(space.tag(last - 1), 5);
    }

    /// Also when its parent had mapped them all, and just not said so.
    #[test]
    fn a_child_has_tags_for_all_units_at_the_last_moment() {
        let (space, _) = begun();
        let (most, last) = (space.most.load(Relaxed), space.limit.load(Relaxed));
        assert_eq!(space.know(last), Ok(()));
        space.tell(most);
        assert_eq!(space.know(last), Ok(()));
        assert_eq!(space.most.load(Relaxed), last);
    }

    /// A child forked amid passing by finds the same in its way, however much of that was written down.
    #[test]
    fn a_child_passes_by_again() {
        for is_high_stored in [false, true] {
            let (space, _) = begun();
            assert_eq!(space.find_at_end(10, 1), Some(0));
            space.used_bits().put(0, 10, true);
            let (open, high) = (space.open.load(Relaxed), space.high.load(Relaxed));
            let units = layout(space.limit.load(Relaxed)).units;
            map(space, (units + open * UNIT, units + (open + 1) * UNIT));
            space.skip(4 * STEP).expect("there are tags");
            let passed = space.high.load(Relaxed);
            space.open.store(open, Relaxed);
            if !is_high_stored {
                space.high.store(high, Relaxed);
            }
            let first = space.find_at_end(100, 1).expect("there is address space");
            assert!(first > open, "what others have, at {open}, is in 100 from {first} on");
            assert!(!is_high_stored || first >= passed, "what was passed by is used");
        }
    }

    /// What others have mapped where an array belongs stays theirs.
    #[test]
    fn arrays_are_not_made_of_what_others_have() {
        for (is_child, part) in [(false, 1), (true, 1), (false, 3), (true, 3)] {
            let (space, parts) = begun_where_room_is_scarce();
            space.knowing.store(is_child, Relaxed);
            let from = parts[part].0;
            map(space, (from + PAGE_MAX, from + 2 * PAGE_MAX));
            let most = space.most.load(Relaxed);
            assert_eq!(space.know(most + 1), Err(libc::ENOMEM));
            assert_eq!(space.most.load(Relaxed), most);
        }
    }
}

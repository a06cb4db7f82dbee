//! Blocks that are too large for slabs: runs of units, each with one block.
//!
//! Large ones ask for huge pages, for the part of them in which whole ones fit, while they live. A block that asks may make two
//! mappings of one, of which a process has 65,530 as a rule, so only so many do. A slab that lay where a block has asked would have
//! 2 MiB for its first object, most of which would count as dropped.

use super::heap_error::Fault;
use super::huge_pages::HUGE_PAGE;
use super::purge;
use super::slab::{Shape, Slab};
use super::{LARGE, NOTHING, SPACE, UNIT, tag_of, unit_of};
use crate::sys::Host;
use crate::sys::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::sys::errno;
use crate::sys::machine::Machine as _;

/// Blocks of so many units ask.
const HUGE_BLOCK_LEAST: usize = 2 * HUGE_PAGE / UNIT;
/// Blocks of so many begin with a huge page. Less before them is left over than an eighth of them.
const ALIGNED_LEAST: usize = 8 * HUGE_PAGE / UNIT;
/// While there are more such blocks than these no further one asks.
const HUGE_BLOCKS_MAX: usize = 8192;

/// How many blocks there are that are large enough to ask.
static HUGE_BLOCKS: AtomicUsize = AtomicUsize::new(0);

/// The address of a block of so many bytes, aligned to 64 KiB at least. `None` if there is no memory.
pub fn allocate(bytes: usize, align: usize) -> Option<usize> {
    let _errno = errno::save();
    let (first, units) = take(bytes, align)?;
    begin(first, units);
    Some(SPACE.address(first))
}

/// The same, all zero. Pages that were not used before are not touched.
pub fn allocate_zeroed(bytes: usize, align: usize) -> Option<usize> {
    let _errno = errno::save();
    let (first, units) = take(bytes, align)?;
    clear(first, units);
    begin(first, units);
    Some(SPACE.address(first))
}

fn take(bytes: usize, align: usize) -> Option<(usize, usize)> {
    let units = units_of(bytes)?;
    let align = align.div_ceil(UNIT).max(1);
    // There may be room only where it does not begin with a huge page.
    let first = huge_page_align(units).and_then(|huge| SPACE.take(units, align.max(huge)));
    let first = first.or_else(|| SPACE.take(units, align))?;
    advise(first, 0, units);
    Some((first, units))
}

fn units_of(bytes: usize) -> Option<usize> {
    Some(bytes.max(1).checked_next_multiple_of(UNIT)? / UNIT)
}

/// Clears what may hold anything of units that were just taken.
fn clear(first: usize, units: usize) {
    let (dirty, end) = (SPACE.dirty_bits(), first + units);
    let mut at = dirty.find(true, first, end);
    while at < end {
        let stop = dirty.find(false, at, end);
        // SAFETY: the units are nobody else's, accessible, and free of objects.
        unsafe { core::ptr::write_bytes(SPACE.address(at) as *mut u8, 0, (stop - at) * UNIT) };
        at = dirty.find(true, stop, end);
    }
}

fn begin(first: usize, units: usize) {
    Slab::begin(first, 0, 0, 0, Shape { size: units * UNIT, units, mark: 0 }, LARGE);
}

/// The large block that begins at an address.
fn find(address: usize) -> Option<&'static Slab> {
    let slab = (tag_of(address) == LARGE).then(|| Slab::holding(address)).flatten()?;
    (SPACE.address(slab.unit()) == address).then_some(slab)
}

/// The bytes of the large block that begins at an address, if one does.
pub fn size(address: usize) -> Option<usize> {
    find(address).map(|slab| slab.size.load(Relaxed))
}

/// What is wrong with freeing an address at which no block is, and the bytes of the block that there is, or was, 0 if there was none.
pub fn fault_at(address: usize) -> (Fault, usize) {
    let Some(unit) = unit_of(address).filter(|&unit| unit < SPACE.high()) else {
        return (Fault::Foreign, 0);
    };
    // Whoever has just ended the block that was there has given its units back by then.
    let _held = SPACE.held();
    let holds = |slab: &Slab| {
        (slab.unit()..slab.unit() + slab.units.load(Relaxed) as usize).contains(&unit)
    };
    // Of a large block only the first unit says what it is.
    let first = (0..=unit).rev().find(|&unit| SPACE.tag(unit) != NOTHING);
    let around = first.filter(|&unit| SPACE.tag(unit) == LARGE).map(|unit| SPACE.slab(unit));
    if let Some(around) = around.filter(|slab| holds(slab)) {
        return (Fault::Inside, around.size.load(Relaxed));
    }
    if SPACE.used_bits().has(unit) {
        // It was passed by, and nothing is known of it.
        return (Fault::Foreign, 0);
    }
    // What is known of units stays when they are given back.
    let last = SPACE.slab(SPACE.slab(unit).unit());
    let size = last.size.load(Relaxed);
    let is_start = |start: usize| size != 0 && (address - start).is_multiple_of(size);
    match holds(last) && is_start(SPACE.address(last.unit())) {
        true => (Fault::FreedTwice, size),
        false => (Fault::Foreign, 0),
    }
}

/// Ends a large block; false if there is none, or somebody else has just ended it.
pub fn free(address: usize) -> bool {
    let _errno = errno::save();
    let slab = find(address);
    slab.inspect(|slab| unadvise(slab.unit(), slab.units.load(Relaxed) as usize, 0));
    let ended = slab.and_then(Slab::end_large);
    ended.inspect(|&units| count_ended(units, 0));
    purge::if_many();
    ended.is_some()
}

/// Makes a large block so large where it is, if that can be done. New memory in it may hold anything.
pub fn resize(address: usize, bytes: usize) -> bool {
    let _errno = errno::save();
    let Some((slab, wanted)) = find(address).zip(units_of(bytes)) else { return false };
    let units = slab.units.load(Relaxed) as usize;
    let end = slab.unit() + units;
    if wanted > units && SPACE.extend(end, wanted - units).is_none() {
        return false;
    }
    // Its own first, so that units are given back that nothing leads to.
    begin(slab.unit(), wanted);
    if wanted > units {
        advise(slab.unit(), units, wanted);
    }
    if wanted < units {
        unadvise(slab.unit(), units, wanted);
        count_ended(units, wanted);
        SPACE.give(slab.unit() + wanted, units - wanted);
        purge::if_many();
    }
    true
}

/// What a block of so many units is aligned to, if there is room.
fn huge_page_align(units: usize) -> Option<usize> {
    (units >= ALIGNED_LEAST).then_some(HUGE_PAGE / UNIT)
}

/// A block that had `before` units, or 0, has more now. Asks for huge pages, but not once more where it has asked before.
fn advise(first: usize, before: usize, units: usize) {
    if units < HUGE_BLOCK_LEAST {
        return;
    }
    let is_new = before < HUGE_BLOCK_LEAST;
    // Relaxed, here and below: it counts, and orders nothing.
    let others = if is_new {
        HUGE_BLOCKS.fetch_add(1, Relaxed)
    } else {
        HUGE_BLOCKS.load(Relaxed).saturating_sub(1)
    };
    if others >= HUGE_BLOCKS_MAX {
        return;
    }
    let start = match is_new {
        true => SPACE.address(first).next_multiple_of(HUGE_PAGE),
        // The one in which it ended is whole now, if any is.
        false => SPACE.address(first + before) / HUGE_PAGE * HUGE_PAGE,
    };
    let end = SPACE.address(first + units) / HUGE_PAGE * HUGE_PAGE;
    if start < end {
        Host::prefer_huge_pages(start, end - start, true);
    }
}

/// A block of `before` units, or what is behind its first few, is about to be given back: that asks no longer, nor does the rest if it is small.
/// Who gives back what is somebody else's by now takes no more than advice from them.
fn unadvise(first: usize, before: usize, units: usize) {
    if before >= HUGE_BLOCK_LEAST {
        // What is before is not the block's, nor may be what is behind: a huge page that slabs fill goes on asking.
        let start = match units < HUGE_BLOCK_LEAST {
            true => SPACE.address(first).next_multiple_of(HUGE_PAGE),
            false => SPACE.address(first + units),
        };
        let end = SPACE.address(first + before);
        let end = if SPACE.is_packed(first + before) { end / HUGE_PAGE * HUGE_PAGE } else { end };
        if start < end {
            Host::prefer_huge_pages(start, end - start, false);
        }
    }
}

/// It was given back.
fn count_ended(before: usize, units: usize) {
    if before >= HUGE_BLOCK_LEAST && units < HUGE_BLOCK_LEAST {
        HUGE_BLOCKS.fetch_add(1_usize.wrapping_neg(), Relaxed);
    }
}

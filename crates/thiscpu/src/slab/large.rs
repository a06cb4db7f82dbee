//! Blocks that are too large for slabs: runs of units, each with one block.

use super::fault::Fault;
use super::huge;
use super::objects::{Shape, Slab};
use super::purge;
use super::space::{LARGE, NOTHING, SPACE, UNIT, tag_of, unit_of};
use crate::sys::atomic::Ordering::Relaxed;
use crate::sys::errno;

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
    let first = huge::align(units).and_then(|huge| SPACE.take(units, align.max(huge)));
    let first = first.or_else(|| SPACE.take(units, align))?;
    huge::begun(first, 0, units);
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
    slab.inspect(|slab| huge::ending(slab.unit(), slab.units.load(Relaxed) as usize, 0));
    let ended = slab.and_then(Slab::end_large);
    ended.inspect(|&units| huge::ended(units, 0));
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
        huge::begun(slab.unit(), units, wanted);
    }
    if wanted < units {
        huge::ending(slab.unit(), units, wanted);
        huge::ended(units, wanted);
        SPACE.give(slab.unit() + wanted, units - wanted);
        purge::if_many();
    }
    true
}

//! Huge pages: asked for by large blocks, for the part of them in which whole ones fit.
//!
//! A range that asks for them does so until its pages are dropped, whatever is in it meanwhile. Each block may make two mappings of one, of
//! which a process has 65,530 as a rule, so only so many blocks ask.

use super::space::{SPACE, UNIT};
use crate::sys::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::sys::machine::{Here, Machine as _};

/// The bytes of a huge page, where others have 4 KiB.
const PAGE: usize = 2 * 1024 * 1024;
/// Blocks of so many units ask.
const LEAST: usize = 2 * PAGE / UNIT;
/// Blocks of so many begin with a huge page. Less before them is left over than an eighth of them.
const ALIGNED_LEAST: usize = 8 * PAGE / UNIT;
/// While there are more such blocks than these no further one asks.
const BLOCKS_MAX: usize = 8192;

/// How many blocks there are that are large enough to ask.
static BLOCKS: AtomicUsize = AtomicUsize::new(0);

/// What a block of so many units is aligned to, if there is room.
pub(super) fn align(units: usize) -> Option<usize> {
    (units >= ALIGNED_LEAST).then_some(PAGE / UNIT)
}

/// A block that had `before` units, or 0, has so many now. Asks for huge pages, but not once more where it has asked before.
pub(super) fn prefer(first: usize, before: usize, units: usize) {
    match (before >= LEAST, units >= LEAST) {
        (true, false) => return ended(before),
        (_, false) => return,
        // Relaxed, here and below: it counts, and orders nothing.
        (false, true) if BLOCKS.fetch_add(1, Relaxed) >= BLOCKS_MAX => return,
        (true, true) if BLOCKS.load(Relaxed) > BLOCKS_MAX => return,
        (_, true) => {}
    }
    let asked = if before >= LEAST { before } else { 0 };
    let start = match asked {
        0 => SPACE.address(first).next_multiple_of(PAGE),
        // The one in which it ended is whole now, if any is.
        asked => SPACE.address(first + asked) / PAGE * PAGE,
    };
    let end = SPACE.address(first + units) / PAGE * PAGE;
    if start < end {
        // Relaxed: who drops the pages has had the space's lock since this thread gave the units back.
        SPACE.has_huge_pages.store(true, Relaxed);
        Here::prefer_huge_pages(start, end - start, true);
    }
}

/// A block of so many units has ended.
pub(super) fn ended(units: usize) {
    if units >= LEAST {
        BLOCKS.fetch_sub(1, Relaxed);
    }
}

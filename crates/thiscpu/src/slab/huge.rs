//! Huge pages: asked for by large blocks, for the part of them in which whole ones fit, while they live.
//!
//! A block that asks may make two mappings of one, of which a process has 65,530 as a rule, so only so many do. A slab that lay where a block
//! has asked would have 2 MiB for its first object, most of which would count as dropped.

use super::space::{SPACE, UNIT};
use crate::sys::Host;
use crate::sys::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::sys::machine::Machine as _;

/// The bytes of a huge page, where others have 4 KiB.
pub(super) const PAGE: usize = 2 * 1024 * 1024;
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

/// A block that had `before` units, or 0, has more now. Asks for huge pages, but not once more where it has asked before.
pub(super) fn begun(first: usize, before: usize, units: usize) {
    if units < LEAST {
        return;
    }
    let is_new = before < LEAST;
    // Relaxed, here and below: it counts, and orders nothing.
    let others =
        if is_new { BLOCKS.fetch_add(1, Relaxed) } else { BLOCKS.load(Relaxed).saturating_sub(1) };
    if others >= BLOCKS_MAX {
        return;
    }
    let start = match is_new {
        true => SPACE.address(first).next_multiple_of(PAGE),
        // The one in which it ended is whole now, if any is.
        false => SPACE.address(first + before) / PAGE * PAGE,
    };
    let end = SPACE.address(first + units) / PAGE * PAGE;
    if start < end {
        Host::prefer_huge_pages(start, end - start, true);
    }
}

/// A block of `before` units, or what is behind its first few, is about to be given back: that asks no longer, nor does the rest if it is small.
/// Who gives back what is somebody else's by now takes no more than advice from them.
pub(super) fn ending(first: usize, before: usize, units: usize) {
    if before >= LEAST {
        // What is before is not the block's, nor may be what is behind: a huge page that slabs fill goes on asking.
        let start = match units < LEAST {
            true => SPACE.address(first).next_multiple_of(PAGE),
            false => SPACE.address(first + units),
        };
        let end = SPACE.address(first + before);
        let end = if SPACE.is_packed(first + before) { end / PAGE * PAGE } else { end };
        if start < end {
            Host::prefer_huge_pages(start, end - start, false);
        }
    }
}

/// It was given back.
pub(super) fn ended(before: usize, units: usize) {
    if before >= LEAST && units < LEAST {
        BLOCKS.fetch_add(1_usize.wrapping_neg(), Relaxed);
    }
}

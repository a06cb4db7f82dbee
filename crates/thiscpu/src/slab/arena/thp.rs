//! Huge pages for large blocks, where they are dense.
//!
//! A program that touches single pages of a large block would get 2 MiB for each of them. So a
//! block of 4 MiB or more is advised only after it was seen to be *dense*: of some of its ranges of
//! 2 MiB, spread over the block, at least two have pages, and all that have any are three quarters
//! full. Blocks are looked at by later calls for large blocks, one call in 10 ms, each block up to
//! eight times at growing distances. The mode `Always` advises each block when it is allocated, and
//! `Never` none.
//!
//! Advice may split a mapping of the process in two, and a process can have only 65,530 mappings by
//! default. So the number of advised blocks is limited. A block is advised as a whole, so that it
//! stays one mapping, which can be moved. Its advice, the program's own included, is withdrawn when
//! it is freed, because a slab placed there would otherwise get 2 MiB for its first object.

use core::ops::Range;

use super::huge_pages::HUGE_PAGE_BYTES;
use super::{ARENA, CHUNK_BYTES, LARGE};
use crate::sys::Host;
use crate::sys::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use crate::sys::lock::Lock;
use crate::sys::machine::Machine as _;

/// When memory gets huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Thp {
    /// Never, slabs included.
    Never,
    /// Large blocks once they were seen to be dense, and slabs. The default.
    Dense,
    /// Large blocks of 4 MiB or more from the start, and slabs.
    Always,
}

/// Number of chunks from which on a block may be advised.
const ADVISED_CHUNKS_MIN: usize = 2 * HUGE_PAGE_BYTES / CHUNK_BYTES;
/// Number of advised blocks above which no further one is.
const ADVISED_MAX: usize = 8192;
/// Number of ranges of a block that a look samples.
const SAMPLES: usize = 8;
/// Pages of 4 KiB in a range that is full enough: three quarters.
const FULL_PAGES: usize = HUGE_PAGE_BYTES / 4096 * 3 / 4;
/// The time between two looks, and between a block's allocation and its first one.
const LOOK_NS: u64 = 10_000_000;
/// Number of looks at a block; the time between them doubles.
const LOOKS_MAX: u32 = 8;

/// The mode, as a number.
static MODE: AtomicU8 = AtomicU8::new(Thp::Dense as u8);
/// Number of advised blocks.
static ADVISED: AtomicUsize = AtomicUsize::new(0);

/// Sets when memory gets huge pages from now on.
pub fn set_thp(mode: Thp) {
    // Relaxed, here and below: the mode leads to nothing else.
    MODE.store(mode as u8, Relaxed);
}

/// Returns when memory gets huge pages now.
pub fn thp_mode() -> Thp {
    [Thp::Always, Thp::Never].into_iter().find(|&mode| is_mode(mode)).unwrap_or(Thp::Dense)
}

pub(super) fn is_mode(mode: Thp) -> bool {
    MODE.load(Relaxed) == mode as u8
}

/// A block that is still looked at. Accessed under the lock of the list.
struct Young {
    first: AtomicU32,
    /// Number of its chunks; 0 if there is no block.
    chunks: AtomicU32,
    looks: AtomicU32,
    next_look_ns: AtomicU64,
}

/// The blocks that were allocated last.
static YOUNG: [Young; 64] = [const {
    Young {
        first: AtomicU32::new(0),
        chunks: AtomicU32::new(0),
        looks: AtomicU32::new(0),
        next_look_ns: AtomicU64::new(0),
    }
}; 64];
static LIST_LOCK: Lock = Lock::new();
/// The place in the list for the next block; and whether there was ever a block.
static NEXT_PLACE: AtomicUsize = AtomicUsize::new(0);
static NEXT_LOOK_NS: AtomicU64 = AtomicU64::new(0);

/// Advises a new block, or remembers it. The caller owns the block.
pub(super) fn begin(first: usize, chunks: usize) {
    ARENA.slab(first).set_advised(false);
    if chunks < ADVISED_CHUNKS_MIN {
        return;
    }
    if is_mode(Thp::Always) {
        advise(first, 0..chunks);
    } else if is_mode(Thp::Dense) {
        remember(first, chunks);
    }
}

/// Remembers a block that is to be looked at, and forgets the oldest one.
fn remember(first: usize, chunks: usize) {
    let Some(_guard) = LIST_LOCK.try_lock() else { return };
    let known = YOUNG
        .iter()
        .find(|young| young.first.load(Relaxed) == first as u32 && young.chunks.load(Relaxed) != 0);
    let young = known.unwrap_or_else(|| {
        let place = NEXT_PLACE.load(Relaxed);
        NEXT_PLACE.store(place + 1, Relaxed);
        &YOUNG[place % YOUNG.len()]
    });
    young.first.store(first as u32, Relaxed);
    young.chunks.store(chunks as u32, Relaxed);
    young.looks.store(0, Relaxed);
    young.next_look_ns.store(Host::coarse_time() + LOOK_NS, Relaxed);
}

/// Advises the new part of a block that has grown from `before` chunks and is now at `first`.
///
/// Does nothing unless the block was advised, has just become large enough, or is seen to be dense.
/// The caller owns the block.
pub(super) fn grow(first: usize, before: usize, chunks: usize) {
    if grow_advised(first, before..chunks) {
        return;
    }
    if before < ADVISED_CHUNKS_MIN {
        begin(first, chunks);
    } else if is_mode(Thp::Dense) {
        if is_look_due() && is_dense(first, before) {
            advise(first, 0..chunks);
        } else {
            remember(first, chunks);
        }
    }
}

/// Advises some chunks of a block if it is advised, and returns whether it is.
///
/// The caller owns the block.
pub(super) fn grow_advised(first: usize, part: Range<usize>) -> bool {
    let is_advised = ARENA.slab(first).is_advised();
    if is_advised {
        advise(first, part);
    }
    is_advised
}

/// Advises some chunks of a block, which counts as advised unless the system refuses.
///
/// The owner and a thread that holds the lock may call this at once.
fn advise(first: usize, part: Range<usize>) {
    let slab = ARENA.slab(first);
    let is_first = !slab.is_advised();
    if is_first {
        let is_one_too_many = ADVISED.fetch_add(1, Relaxed) >= ADVISED_MAX;
        if is_one_too_many || slab.set_advised(true) {
            uncount_advised();
        }
        if is_one_too_many {
            return;
        }
    }
    let is_done = prefer(first + part.start..first + part.end, true);
    // The owner may just be moving the block, so that nothing is mapped here.
    if is_first && !is_done && slab.set_advised(false) {
        uncount_advised();
    }
}

fn uncount_advised() {
    ADVISED.fetch_add(1_usize.wrapping_neg(), Relaxed);
}

/// Unadvises a part of a block that is about to be freed, all of it if the rest is too small.
///
/// The caller owns the block, and has locked the arena, so no look at the block advises it again.
pub(super) fn end(first: usize, chunks: Range<usize>) {
    let slab = ARENA.slab(first);
    if chunks.end < ADVISED_CHUNKS_MIN {
        return;
    }
    let is_small = chunks.start < ADVISED_CHUNKS_MIN;
    let start = if is_small && slab.is_advised() { 0 } else { chunks.start };
    // Also if this module has given no advice: the program may have.
    prefer(first + start..first + chunks.end, false);
    if is_small && slab.set_advised(false) {
        uncount_advised();
    }
}

/// Advises chunks for or against huge pages; returns false if the system refuses.
fn prefer(chunks: Range<usize>, is_wanted: bool) -> bool {
    let [mut start, mut end] = [chunks.start, chunks.end].map(|chunk| ARENA.address(chunk));
    // The memory before and behind the block may be that of slabs, which have advice of their own.
    if ARENA.is_advised(chunks.start) {
        start = start.next_multiple_of(HUGE_PAGE_BYTES);
    }
    if ARENA.is_advised(chunks.end) {
        end = end / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    }
    start >= end || Host::prefer_huge_pages(start, end - start, is_wanted)
}

/// Returns whether it is time for a look, and reserves it for the caller.
fn is_look_due() -> bool {
    let (now, next) = (Host::coarse_time(), NEXT_LOOK_NS.load(Relaxed));
    now >= next && NEXT_LOOK_NS.compare_exchange(next, now + LOOK_NS, Relaxed, Relaxed).is_ok()
}

/// Looks at a block that was allocated a while ago, if it is time. The caller holds no lock.
///
/// Costs a load while there are none, and else a look at the clock.
pub fn look_if_due() {
    if NEXT_PLACE.load(Relaxed) == 0 || !is_mode(Thp::Dense) || !is_look_due() {
        return;
    }
    let Some(_guard) = LIST_LOCK.try_lock() else { return };
    let now = Host::coarse_time();
    let due = YOUNG.iter().filter(|young| young.chunks.load(Relaxed) != 0);
    let due = due.min_by_key(|young| young.next_look_ns.load(Relaxed));
    let Some(young) = due.filter(|young| young.next_look_ns.load(Relaxed) <= now) else { return };
    let [first, chunks] = [&young.first, &young.chunks].map(|word| word.load(Relaxed) as usize);
    if !is_block(first, chunks) {
        return young.chunks.store(0, Relaxed);
    }
    let looks = young.looks.load(Relaxed) + 1;
    young.looks.store(looks, Relaxed);
    young.next_look_ns.store(now + (LOOK_NS << looks), Relaxed);
    if looks == LOOKS_MAX {
        young.chunks.store(0, Relaxed);
    }
    if is_dense(first, chunks) {
        // With the lock, no thread frees or shrinks the block. If its pages just move, the advice
        // fails, or moves with them.
        let _guard = ARENA.locked();
        if is_block(first, chunks) && !ARENA.slab(first).is_advised() {
            advise(first, 0..chunks);
        }
        young.chunks.store(0, Relaxed);
    }
}

/// Returns whether such a block is there; an estimate without the lock.
fn is_block(first: usize, chunks: usize) -> bool {
    ARENA.tag(first) == LARGE && ARENA.slab(first).chunks.load(Relaxed) as usize == chunks
}

/// Returns whether the pages of a block are dense.
fn is_dense(first: usize, chunks: usize) -> bool {
    let start = ARENA.address(first).next_multiple_of(HUGE_PAGE_BYTES);
    let ranges = (ARENA.address(first + chunks) - start) / HUGE_PAGE_BYTES;
    let samples = ranges.min(SAMPLES);
    let mut full = 0;
    for sample in 0..samples {
        let range = start + sample * ranges / samples * HUGE_PAGE_BYTES;
        match Host::resident_pages(range, HUGE_PAGE_BYTES) {
            Some(0) => {}
            Some(pages) if pages >= FULL_PAGES => full += 1,
            _ => return false,
        }
    }
    full >= 2
}

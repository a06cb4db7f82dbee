//! What calls have come to. Calls for small blocks are only counted where that was asked for.

use core::sync::atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed};

use thiscpu::{Counters, inside};

use crate::blocks::{COUNTED, count_calls, has_extra};
use crate::classes::{COUNT, size_of_class};
use crate::heap;

const ALLOCATIONS: usize = 0;
const FREES: usize = 1;
const HITS: usize = 2;

static COUNTS: [Counters<3>; COUNT] = [const { Counters::new() }; COUNT];

// Relaxed, all of them: statistics, on which nothing rests.
static LARGE_BLOCKS: AtomicI64 = AtomicI64::new(0);
static LARGE_BYTES: AtomicI64 = AtomicI64::new(0);
static USED_MAX: AtomicUsize = AtomicUsize::new(0);
static SYSTEM_MAX: AtomicUsize = AtomicUsize::new(0);

/// Has calls counted from now on, which makes each some nanoseconds slower.
pub fn count() {
    count_calls();
}

pub(crate) fn count_allocation(class: usize, is_hit: bool) {
    let counts = &COUNTS[class];
    counts.add(ALLOCATIONS, 1);
    if is_hit {
        counts.add(HITS, 1);
    } else {
        // The peak can only be passed by a call that takes something from the slabs.
        note_peaks();
    }
}

pub(crate) fn count_free(class: usize, is_hit: bool) {
    let counts = &COUNTS[class];
    counts.add(FREES, 1);
    if is_hit {
        counts.add(HITS, 1);
    }
}

/// A large block of so many bytes has come, or gone.
pub(crate) fn note_large(bytes: i64, blocks: i64) {
    LARGE_BYTES.fetch_add(bytes, Relaxed);
    LARGE_BLOCKS.fetch_add(blocks, Relaxed);
    if has_extra(COUNTED) && bytes > 0 {
        note_peaks();
    }
}

fn note_peaks() {
    let used = (0..COUNT).map(used_about).sum::<usize>() + large_bytes();
    USED_MAX.fetch_max(used, Relaxed);
    SYSTEM_MAX.fetch_max(inside::memory()[2], Relaxed);
}

fn large_bytes() -> usize {
    LARGE_BYTES.load(Relaxed).max(0) as usize
}

/// The bytes of a class's blocks in use, where calls are counted.
fn used_about(class: usize) -> usize {
    let counts = &COUNTS[class];
    (counts.read(ALLOCATIONS) - counts.read(FREES)).max(0) as usize * size_of_class(class)
}

/// What one size class has come to.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ClassStatistics {
    /// The size of its blocks, in bytes.
    pub size: usize,
    /// Blocks handed out so far, since [`count`] asked for that.
    pub allocations: u64,
    /// Blocks given back so far, likewise.
    pub frees: u64,
    /// Calls of both that found what they wanted in their CPU's lane, likewise.
    pub hits: u64,
    /// Sheaves traded with the barn.
    pub trades: u64,
    /// Slabs now.
    pub slabs: usize,
    /// Bytes of blocks in use now. Without counting: with those that lanes keep.
    pub used_bytes: usize,
}

/// What all of it has come to.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Statistics {
    /// Bytes of blocks in use now, large ones included. Without counting: with those that lanes keep.
    pub used_bytes: usize,
    /// The most there ever were, as far as it was noticed; since [`count`] asked for that.
    pub used_bytes_max: usize,
    /// Large blocks now.
    pub large_blocks: usize,
    /// Bytes of large blocks.
    pub large_bytes: usize,
    /// Bytes that the system has given and not got back.
    pub system_bytes: usize,
    /// The most of those, as far as it was noticed.
    pub system_bytes_max: usize,
}

/// Each size class, smallest first. Looks at all slabs; the numbers do not belong to one instant.
pub fn classes() -> impl Iterator<Item = ClassStatistics> {
    (0..COUNT).map(|class| {
        let stats = heap::stats(class);
        let counted = has_extra(COUNTED);
        let [allocations, frees, hits] = if counted { COUNTS[class].snapshot() } else { [0; 3] };
        let used = match counted {
            true => (allocations - frees).max(0) as usize,
            false => stats.objects_out - stats.objects_in_stocks.min(stats.objects_out),
        };
        ClassStatistics {
            size: size_of_class(class),
            allocations: allocations as u64,
            frees: frees as u64,
            hits: hits as u64,
            trades: stats.trades,
            slabs: stats.slabs,
            used_bytes: used * size_of_class(class),
        }
    })
}

/// The totals, as [`classes`].
pub fn statistics() -> Statistics {
    let [_, _, system_bytes] = inside::memory();
    let used_bytes = classes().map(|class| class.used_bytes).sum::<usize>() + large_bytes();
    Statistics {
        used_bytes,
        used_bytes_max: USED_MAX.load(Relaxed).max(used_bytes),
        large_blocks: LARGE_BLOCKS.load(Relaxed).max(0) as usize,
        large_bytes: large_bytes(),
        system_bytes,
        system_bytes_max: SYSTEM_MAX.load(Relaxed).max(system_bytes),
    }
}

//! What calls have come to. Calls for small blocks are only counted where that was asked for.

use core::sync::atomic::{AtomicI64, AtomicU32, AtomicUsize, Ordering::Relaxed};

use thiscpu::{Counters, inside};

use crate::classes::{CLASS_COUNT, size_of_class};
use crate::fast_path::is_counting;
use crate::{guard, heap};

const ALLOCATIONS: usize = 0;
const FREES: usize = 1;
const HITS: usize = 2;

static COUNTS: [Counters<3>; CLASS_COUNT] = [const { Counters::new() }; CLASS_COUNT];

// Relaxed, all of them: statistics, on which nothing rests.
static LARGE_BLOCKS: AtomicI64 = AtomicI64::new(0);
static LARGE_BYTES: AtomicI64 = AtomicI64::new(0);
/// The bytes of each class's blocks in use when they were last looked at, and the sum of those.
static USED_BY_CLASS: [AtomicI64; CLASS_COUNT] = [const { AtomicI64::new(0) }; CLASS_COUNT];
static USED: AtomicI64 = AtomicI64::new(0);
static PEAK_USED: AtomicUsize = AtomicUsize::new(0);
static PEAK_SYSTEM: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn count_allocation(class: usize, is_hit: bool) {
    let counts = &COUNTS[class];
    counts.add(ALLOCATIONS, 1);
    if is_hit {
        counts.add(HITS, 1);
    } else {
        update_used(class);
        update_peaks();
    }
}

pub(crate) fn count_free(class: usize, is_hit: bool) {
    let counts = &COUNTS[class];
    counts.add(FREES, 1);
    if is_hit {
        counts.add(HITS, 1);
    } else {
        update_used(class);
    }
}

/// A large block of so many bytes has come, or gone.
pub(crate) fn record_large(bytes: i64, blocks: i64) {
    LARGE_BYTES.fetch_add(bytes, Relaxed);
    LARGE_BLOCKS.fetch_add(blocks, Relaxed);
    if is_counting() && bytes > 0 {
        update_peaks();
    }
}

/// Looks anew at a class, for each call that passes its lane by. What is known of it is off by what lanes of counters keep back: up to 1,024 calls times
/// the lanes in use, in each of them.
fn update_used(class: usize) {
    let now = estimate_used(class);
    let before = USED_BY_CLASS[class].swap(now, Relaxed);
    USED.fetch_add(now - before, Relaxed);
}

/// Only a call that takes something from the slabs, or a large block, can pass a peak.
fn update_peaks() {
    reset_peaks_after_fork();
    raise(&PEAK_USED, USED.load(Relaxed).max(0) as usize + large_bytes());
    raise(&PEAK_SYSTEM, inside::memory()[2]);
}

fn raise(peak: &AtomicUsize, to: usize) {
    if to > peak.load(Relaxed) {
        peak.fetch_max(to, Relaxed);
    }
}

/// The peaks of its parent are not a child's, which begins with what is in use.
fn reset_peaks_after_fork() {
    static GENERATION: AtomicU32 = AtomicU32::new(0);
    let (seen, now) = (GENERATION.load(Relaxed), inside::generation());
    if seen != now && GENERATION.compare_exchange(seen, now, Relaxed, Relaxed).is_ok() {
        // The fork may have come between the two stores of `update_used`.
        let used = (0..CLASS_COUNT).map(|class| {
            let now = estimate_used(class);
            USED_BY_CLASS[class].store(now, Relaxed);
            now
        });
        USED.store(used.sum(), Relaxed);
        PEAK_USED.store(0, Relaxed);
        PEAK_SYSTEM.store(0, Relaxed);
    }
}

fn large_bytes() -> usize {
    LARGE_BYTES.load(Relaxed).max(0) as usize
}

/// The bytes of a class's blocks in use, where calls are counted.
fn estimate_used(class: usize) -> i64 {
    let counts = &COUNTS[class];
    (counts.read(ALLOCATIONS) - counts.read(FREES)).max(0) * size_of_class(class) as i64
}

/// What one size class has come to.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ClassStats {
    /// The size of its blocks, in bytes.
    pub size: usize,
    /// Blocks handed out so far, since [`enable_counting`](crate::enable_counting) asked for that.
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
pub struct Stats {
    /// Bytes of blocks in use now, large ones included and guarded ones not. Without counting: with those that lanes keep.
    pub used_bytes: usize,
    /// The most there ever were in this process, as far as it was noticed; since [`enable_counting`](crate::enable_counting) asked for that.
    pub peak_used_bytes: usize,
    /// Large blocks now.
    pub large_blocks: usize,
    /// Bytes of large blocks.
    pub large_bytes: usize,
    /// Guarded blocks now, which are in no size class's numbers.
    pub guarded_blocks: usize,
    /// Guarded blocks that there ever were.
    pub guarded_blocks_total: usize,
    /// Bytes that the system has given and not got back.
    pub system_bytes: usize,
    /// The most of those, as far as it was noticed.
    pub peak_system_bytes: usize,
}

/// Each size class, smallest first. Looks at all slabs, once, if calls are not counted; the numbers do not belong to one instant. Where a sandbox has taken membarrier away
/// under way, those of calls are estimates.
pub fn class_stats() -> impl Iterator<Item = ClassStats> {
    let counted = is_counting();
    // Asked for once: after that a sandbox may be closed, but hardly is.
    let has_sums = counted && inside::has_sums();
    let out = if counted { [0; CLASS_COUNT] } else { heap::blocks_outside_slabs() };
    (0..CLASS_COUNT).map(move |class| {
        let objects = heap::objects(class);
        let counts = &COUNTS[class];
        let [allocations, frees, hits] = match counted {
            true if has_sums => counts.snapshot(),
            true => [ALLOCATIONS, FREES, HITS].map(|count| counts.read(count).max(0)),
            false => [0; 3],
        };
        let used = match counted {
            true => (allocations - frees).max(0) as usize,
            false => out[class].saturating_sub(objects.objects_in_barns()),
        };
        ClassStats {
            size: size_of_class(class),
            allocations: allocations as u64,
            frees: frees as u64,
            hits: hits as u64,
            trades: objects.trades(),
            slabs: objects.slabs(),
            used_bytes: used * size_of_class(class),
        }
    })
}

/// The totals, as [`class_stats`].
pub fn stats() -> Stats {
    reset_peaks_after_fork();
    let [_, _, system_bytes] = inside::memory();
    let [guarded_blocks, guarded_blocks_total] = guard::counts();
    let used_bytes = class_stats().map(|class| class.used_bytes).sum::<usize>() + large_bytes();
    raise(&PEAK_USED, used_bytes);
    raise(&PEAK_SYSTEM, system_bytes);
    Stats {
        used_bytes,
        peak_used_bytes: PEAK_USED.load(Relaxed),
        large_blocks: LARGE_BLOCKS.load(Relaxed).max(0) as usize,
        large_bytes: large_bytes(),
        guarded_blocks,
        guarded_blocks_total,
        system_bytes,
        peak_system_bytes: PEAK_SYSTEM.load(Relaxed),
    }
}

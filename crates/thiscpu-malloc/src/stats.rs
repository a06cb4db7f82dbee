//! Statistics. Calls for small blocks are counted only after `enable_counting`.
//!
//! Blocks in use are those outside of slabs, without the free ones in lanes and barns. Slabs and
//! lanes know these numbers in any case, so they cost nothing until someone reads them.

mod totals;

use core::sync::atomic::{AtomicI64, AtomicU32, AtomicUsize, Ordering::Relaxed};

use thiscpu::{__internal, Counters};

use crate::classes::{CLASS_COUNT, size_of_class};
use crate::fast_path::is_counting;
use crate::{guard, heap};

pub use totals::{ClassTotals, Totals};

const ALLOCATIONS: usize = 0;
const FREES: usize = 1;
const HITS: usize = 2;

static COUNTS: [Counters<3>; CLASS_COUNT] = [const { Counters::new() }; CLASS_COUNT];

// Relaxed, for all of these: they are statistics, and no other memory depends on them.
static LARGE_BLOCKS: AtomicI64 = AtomicI64::new(0);
static LARGE_BYTES: AtomicI64 = AtomicI64::new(0);
/// The bytes that each class had in use at its last update, and below, the sum of those.
static USED_BY_CLASS: [AtomicI64; CLASS_COUNT] = [const { AtomicI64::new(0) }; CLASS_COUNT];
static USED: AtomicI64 = AtomicI64::new(0);
static PEAK_USED: AtomicUsize = AtomicUsize::new(0);
static PEAK_SYSTEM: AtomicUsize = AtomicUsize::new(0);

/// Counts an allocation from a class. It is a hit if the CPU's lane had a block.
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

/// Counts a free to a class. It is a hit if the CPU's lane had room.
pub(crate) fn count_free(class: usize, is_hit: bool) {
    let counts = &COUNTS[class];
    counts.add(FREES, 1);
    if is_hit {
        counts.add(HITS, 1);
    } else {
        update_used(class);
    }
}

/// Adds to the number of runs of chunks and their bytes, or subtracts from them.
pub(crate) fn record_large(bytes: i64, blocks: i64) {
    LARGE_BYTES.fetch_add(bytes, Relaxed);
    LARGE_BLOCKS.fetch_add(blocks, Relaxed);
    if is_counting() && bytes > 0 {
        update_peaks();
    }
}

/// Updates the bytes in use of a class, for calls that missed their lane.
///
/// The result is off by what counters hold back in lanes: up to 1,024 calls in each lane in use.
fn update_used(class: usize) {
    let now = estimate_used(class);
    let before = USED_BY_CLASS[class].swap(now, Relaxed);
    USED.fetch_add(now - before, Relaxed);
}

/// Raises the peaks. Only misses and large blocks can exceed a peak, so only those call this.
fn update_peaks() {
    reset_peaks_after_fork();
    raise(&PEAK_USED, USED.load(Relaxed).max(0) as usize + large_bytes());
    raise(&PEAK_SYSTEM, __internal::memory()[2]);
}

fn raise(peak: &AtomicUsize, to: usize) {
    // The load keeps the cache line shared when there is nothing to raise.
    if to > peak.load(Relaxed) {
        peak.fetch_max(to, Relaxed);
    }
}

/// Resets the peaks in a forked child. They begin with its use at the fork.
fn reset_peaks_after_fork() {
    static GENERATION: AtomicU32 = AtomicU32::new(0);
    let (seen, now) = (GENERATION.load(Relaxed), __internal::generation());
    if seen != now && GENERATION.compare_exchange(seen, now, Relaxed, Relaxed).is_ok() {
        // Sum again: the fork may have come between the two stores of `update_used`.
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

/// Returns about how many bytes of a class's blocks are in use, if calls are counted.
fn estimate_used(class: usize) -> i64 {
    let counts = &COUNTS[class];
    (counts.read(ALLOCATIONS) - counts.read(FREES)).max(0) * size_of_class(class) as i64
}

/// Statistics of one size class.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ClassStats {
    /// The size of its blocks, in bytes.
    pub size: usize,
    /// Blocks allocated since [`enable_counting`](crate::enable_counting); 0 without counting.
    pub allocations: u64,
    /// Blocks freed since [`enable_counting`](crate::enable_counting); 0 without counting.
    pub frees: u64,
    /// Allocations and frees that their CPU's lane could serve; 0 without counting.
    pub hits: u64,
    /// Sheaves that lanes have traded with their barns so far.
    pub trades: u64,
    /// Blocks so far that returned to a slab of another CPU's share, or of another NUMA node.
    ///
    /// A block counts when it returns to its slab, so blocks that are allocated again before are
    /// not included. [`trim`](crate::trim) does not count those that it takes from lanes.
    pub remote_frees: u64,
    /// Slabs that the class has now.
    pub slabs: usize,
    /// Bytes of blocks in use now.
    ///
    /// Exact while no thread allocates or frees. Otherwise it may miss, for each CPU, the calls of
    /// the last moment, and a sheaf that is between two places.
    pub allocated_bytes: usize,
    /// Bytes of free blocks now: in lanes, in barns, and in slabs, touched or not.
    pub free_bytes: usize,
}

impl ClassStats {
    /// Returns whether the class was ever used.
    pub fn is_used(&self) -> bool {
        self.allocations + self.trades != 0 || self.slabs != 0
    }
}

/// Statistics of the whole allocator.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Bytes of blocks in use now, including large ones and excluding guarded ones.
    ///
    /// A block counts with the size of its class, or with whole chunks of 64 KiB if it has none.
    pub allocated_bytes: usize,
    /// The highest value of `allocated_bytes` that was noticed in this process.
    ///
    /// Without counting, only calls of [`stats`] notice it. With counting, calls that miss their
    /// lane and large allocations do, too.
    pub peak_allocated_bytes: usize,
    /// Bytes of free blocks of size classes now: in lanes, barns and slabs, touched or not.
    pub free_bytes: usize,
    /// Number of free blocks of size classes now.
    pub free_blocks: usize,
    /// Blocks in use now that belong to no size class.
    ///
    /// These are blocks of more than 4 MiB, blocks with an alignment above 64 KiB, blocks that were
    /// resized to more than 512 KiB, and blocks of more than 32 KiB that a heap profile samples.
    pub large_blocks: usize,
    /// Bytes of blocks in use now that belong to no size class.
    pub large_bytes: usize,
    /// Guarded blocks in use now. They are not in any class's numbers.
    pub guarded_blocks: usize,
    /// Guarded blocks that were allocated so far.
    pub guarded_blocks_total: usize,
    /// Bytes of slabs, large blocks and free chunks that may have pages.
    ///
    /// Pages that slabs in use have returned to the system do not count.
    pub system_bytes: usize,
    /// The highest value of `system_bytes` that was noticed, like `peak_allocated_bytes`.
    pub peak_system_bytes: usize,
    /// Bytes that may have pages now: `system_bytes` and the heap's metadata.
    ///
    /// An upper bound of what the heap adds to the process's resident memory: memory that the
    /// program has not touched yet is included.
    pub resident_bytes: usize,
    /// Bytes of address space that the heap and its metadata take, with or without pages.
    pub mapped_bytes: usize,
    /// Bytes of `mapped_bytes` without pages: returned to the system, or never used.
    pub retained_bytes: usize,
    /// Bytes of free chunks that [`trim`](crate::trim) would return to the system now.
    pub purgeable_bytes: usize,
    /// Bytes that were returned to the system so far. The same page counts each time.
    pub purged_bytes: u64,
    /// Sheaves that lanes have traded with their barns so far.
    pub trades: u64,
    /// The sum of [`ClassStats::remote_frees`].
    pub remote_frees: u64,
}

/// Returns the statistics of each size class, smallest first.
///
/// The numbers do not belong to one instant. This visits each slab and each lane once. With
/// counting, each class also costs a fence; if a sandbox has denied `membarrier` meanwhile, the
/// counts of calls are estimates. Allocates nothing. Must not be called from a signal handler.
pub fn class_stats() -> impl Iterator<Item = ClassStats> {
    let is_counting = is_counting();
    // Checked once: a sandbox is unlikely to close while the iterator is in use.
    let has_sums = is_counting && __internal::has_sums();
    heap::blocks_by_class().into_iter().enumerate().map(move |(class, (outside, in_slabs))| {
        let (objects, counts) = (heap::objects(class), &COUNTS[class]);
        let [allocations, frees, hits] = match is_counting {
            true if has_sums => counts.snapshot(),
            true => [ALLOCATIONS, FREES, HITS].map(|count| counts.read(count).max(0)),
            false => [0; 3],
        };
        let size = size_of_class(class);
        let cached = (objects.objects_in_barns() + objects.objects_in_lanes()).min(outside);
        ClassStats {
            size,
            allocations: allocations as u64,
            frees: frees as u64,
            hits: hits as u64,
            trades: objects.trades(),
            remote_frees: objects.remote_frees(),
            slabs: objects.slabs(),
            allocated_bytes: (outside - cached) * size,
            free_bytes: (in_slabs + cached) * size,
        }
    })
}

/// Returns the totals of all classes and of large and guarded blocks.
///
/// Costs what [`class_stats`] does, and like there, the numbers do not belong to one instant.
pub fn stats() -> Stats {
    totals(class_stats())
}

/// Returns the totals of classes that were visited, and of large and guarded blocks.
pub(crate) fn totals(classes: impl Iterator<Item = ClassStats>) -> Stats {
    reset_peaks_after_fork();
    let mut now = Stats::default();
    for class in classes {
        now.allocated_bytes += class.allocated_bytes;
        now.free_bytes += class.free_bytes;
        now.free_blocks += class.free_bytes / class.size;
        now.trades += class.trades;
        now.remote_frees += class.remote_frees;
    }
    let [_, _, system_bytes] = __internal::memory();
    let [guarded_blocks, guarded_blocks_total] = guard::counts();
    let usage = __internal::usage();
    let resident_bytes = system_bytes + usage.metadata;
    let allocated_bytes = now.allocated_bytes + large_bytes();
    raise(&PEAK_USED, allocated_bytes);
    raise(&PEAK_SYSTEM, system_bytes);
    Stats {
        allocated_bytes,
        peak_allocated_bytes: PEAK_USED.load(Relaxed),
        large_blocks: LARGE_BLOCKS.load(Relaxed).max(0) as usize,
        large_bytes: large_bytes(),
        guarded_blocks,
        guarded_blocks_total,
        system_bytes,
        peak_system_bytes: PEAK_SYSTEM.load(Relaxed),
        resident_bytes,
        // Both are estimates of different moments, and pages need address space.
        mapped_bytes: usage.mapped.max(resident_bytes),
        retained_bytes: usage.mapped.saturating_sub(resident_bytes),
        purgeable_bytes: usage.purgeable,
        purged_bytes: usage.purged,
        ..now
    }
}

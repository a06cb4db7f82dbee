//! The statistics with the layout of C, for `thiscpu_malloc.h` and for other copies of this crate.

use super::{ClassStats, Stats, class_stats, stats};
use crate::fast_path::is_counting;

/// The totals, as in `thiscpu_malloc.h`. Fields are only ever added, at the end.
#[allow(missing_docs, reason = "the header documents them")]
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Totals {
    pub allocated_bytes: u64,
    pub peak_allocated_bytes: u64,
    pub free_bytes: u64,
    pub free_blocks: u64,
    pub large_blocks: u64,
    pub large_bytes: u64,
    pub guarded_blocks: u64,
    pub guarded_blocks_total: u64,
    pub system_bytes: u64,
    pub peak_system_bytes: u64,
    pub resident_bytes: u64,
    pub mapped_bytes: u64,
    pub retained_bytes: u64,
    pub purgeable_bytes: u64,
    pub purged_bytes: u64,
    pub trades: u64,
    pub remote_frees: u64,
    pub is_counting: u64,
}

/// A size class, as in `thiscpu_malloc.h`. Fields are only ever added, at the end.
#[allow(missing_docs, reason = "the header documents them")]
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct ClassTotals {
    pub size: u64,
    pub allocations: u64,
    pub frees: u64,
    pub hits: u64,
    pub trades: u64,
    pub remote_frees: u64,
    pub slabs: u64,
    pub allocated_bytes: u64,
    pub free_bytes: u64,
}

impl Totals {
    /// Returns the totals of this moment, as [`stats`](crate::stats()) does.
    pub fn now() -> Totals {
        let now: Stats = stats();
        Totals {
            allocated_bytes: now.allocated_bytes as u64,
            peak_allocated_bytes: now.peak_allocated_bytes as u64,
            free_bytes: now.free_bytes as u64,
            free_blocks: now.free_blocks as u64,
            large_blocks: now.large_blocks as u64,
            large_bytes: now.large_bytes as u64,
            guarded_blocks: now.guarded_blocks as u64,
            guarded_blocks_total: now.guarded_blocks_total as u64,
            system_bytes: now.system_bytes as u64,
            peak_system_bytes: now.peak_system_bytes as u64,
            resident_bytes: now.resident_bytes as u64,
            mapped_bytes: now.mapped_bytes as u64,
            retained_bytes: now.retained_bytes as u64,
            purgeable_bytes: now.purgeable_bytes as u64,
            purged_bytes: now.purged_bytes,
            trades: now.trades,
            remote_frees: now.remote_frees,
            is_counting: is_counting().into(),
        }
    }
}

impl ClassTotals {
    /// Returns all size classes, smallest first, as [`class_stats`](crate::class_stats()) does.
    pub fn all() -> impl Iterator<Item = ClassTotals> {
        class_stats().map(|now: ClassStats| ClassTotals {
            size: now.size as u64,
            allocations: now.allocations,
            frees: now.frees,
            hits: now.hits,
            trades: now.trades,
            remote_frees: now.remote_frees,
            slabs: now.slabs as u64,
            allocated_bytes: now.allocated_bytes as u64,
            free_bytes: now.free_bytes as u64,
        })
    }
}

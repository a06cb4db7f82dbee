//! The capacity of a cache's next sheaves: small at first, larger where sheaves are traded often.
//!
//! A lane keeps two sheaves, and filling one touches each of its objects. So sheaves stay small,
//! unless trades take a fair share of the time.

use crate::slab::arena::slab::Shape;
use crate::slab::lane::sheaf::{CAPACITIES, SMALL_INDEX};
use crate::sys::atomic::{AtomicU32, Ordering::Relaxed};

/// Trades of one barn after which the capacity grows.
const TRADES_TO_GROW: u64 = 32;
/// Swaps in all lanes after which the capacity of large objects grows.
///
/// A program that keeps as many blocks as two sheaves hold never trades, but swaps all the time.
const SWAPS_TO_GROW: u32 = 64;
/// Trades, or swaps, after which it grows beyond the usual limit if the barn was busy.
const TRADES_TO_GROW_BUSY: u64 = 2048;
/// Bytes of objects that a sheaf holds at most, unless the smallest capacity exceeds it.
const BYTES_MAX: usize = 128 * 1024;
/// Bytes of objects that a sheaf of a busy barn holds at most.
const BYTES_MAX_BUSY: usize = 1024 * 1024;
/// Bytes of large objects that a sheaf holds at most: usually, and if a barn is busy.
///
/// The limit on a lane's large objects applies too, and makes new sheaves smaller again.
const BYTES_MAX_LARGE: [usize; 2] = [1024 * 1024, 4 * 1024 * 1024];
/// Index of the capacity, four objects, that all large objects may reach if a barn is busy.
///
/// With sheaves of one or two blocks, a program that uses a few blocks in turn trades on each call.
const BUSY_INDEX_LARGE: usize = SMALL_INDEX;
/// Bytes of constructed objects in a sheaf: about a slab, because a free may destroy as much.
const BYTES_MAX_CONSTRUCTED: usize = 64 * 1024;
/// Bytes of objects that a cache's first sheaves hold at most.
const BYTES_FIRST: usize = 4 * 1024;

/// An index into [`CAPACITIES`]: the capacity of new sheaves.
#[derive(Debug)]
pub(super) struct Capacity {
    index: AtomicU32,
    smallest: u32,
    first: u32,
    max: u32,
    /// The largest index where a barn is busy.
    max_busy: u32,
    is_large: bool,
    swaps: AtomicU32,
}

impl Capacity {
    /// Creates the capacity of a class of that shape; sheaves of large objects begin with one.
    pub(super) fn of(Shape { size, mark, .. }: Shape, is_large: bool) -> Capacity {
        let [max, max_busy] = match mark {
            0 if is_large => BYTES_MAX_LARGE,
            0 => [BYTES_MAX, BYTES_MAX_BUSY],
            _ => [BYTES_MAX_CONSTRUCTED; 2],
        };
        let smallest = if is_large { 0 } else { SMALL_INDEX as u32 };
        // The index of the largest capacity at which the objects fit into that many bytes.
        let index_for = |bytes: usize| {
            let fitting = CAPACITIES.iter().rposition(|capacity| capacity * size <= bytes);
            (fitting.unwrap_or(0) as u32).max(smallest)
        };
        let first = index_for(BYTES_FIRST);
        let index = AtomicU32::new(first);
        let least_busy = if is_large { BUSY_INDEX_LARGE as u32 } else { smallest };
        let (max, max_busy) = (index_for(max), index_for(max_busy).max(least_busy));
        Capacity { index, smallest, first, max, max_busy, is_large, swaps: AtomicU32::new(0) }
    }

    /// Returns the index of the smallest capacity that this class's sheaves have.
    pub(super) fn smallest(&self) -> usize {
        self.smallest as usize
    }

    // Relaxed, in all functions: the index is a heuristic and orders nothing.

    pub(super) fn index(&self) -> usize {
        self.index.load(Relaxed) as usize
    }

    /// Grows the capacity if it is time, given the number of trades of a barn so far.
    pub(super) fn adapt(&self, trades: u64, is_busy: impl FnOnce() -> bool) {
        let index = self.index.load(Relaxed);
        let is_due = match index < self.max {
            true => trades.is_multiple_of(TRADES_TO_GROW),
            false => {
                index < self.max_busy && trades.is_multiple_of(TRADES_TO_GROW_BUSY) && is_busy()
            }
        };
        if is_due {
            self.index.store(index + 1, Relaxed);
        }
    }

    /// Counts a swap; after some, the capacity of large objects grows as it does after trades.
    pub(super) fn count_swap(&self, is_busy: impl FnOnce() -> bool) {
        if !self.is_large {
            return;
        }
        let (index, swaps) = (self.index.load(Relaxed), self.swaps.load(Relaxed).wrapping_add(1));
        self.swaps.store(swaps, Relaxed);
        let is_due = match index < self.max {
            true => swaps.is_multiple_of(SWAPS_TO_GROW),
            false => {
                index < self.max_busy
                    && u64::from(swaps).is_multiple_of(TRADES_TO_GROW_BUSY)
                    && is_busy()
            }
        };
        if is_due {
            self.index.store(index + 1, Relaxed);
        }
    }

    /// Lowers the capacity by one step, if it has grown.
    pub(super) fn lower(&self) {
        let index = self.index.load(Relaxed);
        if index > self.first {
            self.index.store(index - 1, Relaxed);
        }
    }

    pub(super) fn reset(&self) {
        self.index.store(self.first, Relaxed);
    }
}

#[cfg(all(test, not(thiscpu_model)))]
mod tests {
    use super::*;

    fn after(capacity: &Capacity, trades: u64, is_busy: bool) -> usize {
        (1..=trades).for_each(|number| capacity.adapt(number, || is_busy));
        CAPACITIES[capacity.index()]
    }

    #[test]
    fn capacity_grows_with_trades_and_further_when_barn_is_busy() {
        let shape = Shape::of(1024);
        let capacity = Capacity::of(shape, false);
        assert_eq!(CAPACITIES[capacity.index()], 4);
        assert_eq!(after(&capacity, 31, true), 4);
        assert_eq!(after(&capacity, 32, true), 12);
        assert_eq!(after(&capacity, 100_000, false), 124);
        assert_eq!(after(&capacity, 2047, true), 124);
        assert_eq!(after(&capacity, 2048, true), 252);
        assert_eq!(after(&capacity, 100_000, true), 1020);
        capacity.reset();
        assert_eq!(CAPACITIES[capacity.index()], 4);
        assert_eq!(after(&Capacity::of(Shape { mark: 1016, ..shape }, false), 100_000, true), 60);
        // The capacities are bounded for the largest and the smallest objects too.
        assert_eq!(after(&Capacity::of(Shape::of(1024 * 1024), false), 100_000, true), 4);
        assert_eq!(after(&Capacity::of(Shape::of(16), false), 100_000, true), 1020);
    }

    #[test]
    fn sheaf_of_large_objects_begins_with_one() {
        const KIB: usize = 1024;
        for (size, usual, busy) in
            [(64, 12, 60), (128, 4, 28), (256, 4, 12), (512, 2, 4), (2048, 1, 4), (4096, 1, 4)]
        {
            let capacity = Capacity::of(Shape::of_large(size * KIB), true);
            assert_eq!(CAPACITIES[capacity.index()], 1);
            assert_eq!(after(&capacity, 100_000, false), usual, "{size} KiB");
            assert_eq!(after(&capacity, 100_000, true), busy, "{size} KiB");
        }
    }

    #[test]
    fn sheaf_of_large_objects_grows_with_swaps_and_shrinks_at_the_limit() {
        let capacity = Capacity::of(Shape::of_large(64 * 1024), true);
        let swap = |swaps, is_busy| (0..swaps).for_each(|_| capacity.count_swap(|| is_busy));
        swap(SWAPS_TO_GROW - 1, true);
        assert_eq!(CAPACITIES[capacity.index()], 1);
        swap(1, true);
        assert_eq!(CAPACITIES[capacity.index()], 2);
        swap(100_000, false);
        assert_eq!(CAPACITIES[capacity.index()], 12);
        swap(100_000, true);
        assert_eq!(CAPACITIES[capacity.index()], 60);
        (0..3).for_each(|_| capacity.lower());
        assert_eq!(CAPACITIES[capacity.index()], 4);
        (0..5).for_each(|_| capacity.lower());
        assert_eq!(CAPACITIES[capacity.index()], 1);
        let others = Capacity::of(Shape::of(1024), false);
        (0..100_000).for_each(|_| others.count_swap(|| true));
        assert_eq!(CAPACITIES[others.index()], 4);
    }
}

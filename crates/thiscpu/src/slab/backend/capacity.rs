//! How many entries a cache's next sheaves have: few at first, and more where sheaves are traded often.
//!
//! A lane keeps two sheaves, and who fills one touches each of its objects; so they are worth no more than is good, unless trades
//! take a fair share of the time.

use crate::slab::arena::slab::Shape;
use crate::slab::lane::sheaf::CAPACITIES;
use crate::sys::atomic::{AtomicU32, Ordering::Relaxed};

/// The next capacity comes after so many trades of one barn.
const TRADES_TO_GROW: u64 = 32;
/// Where that would be more than a sheaf usually holds: after so many, if the barn was busy meanwhile.
const TRADES_TO_GROW_BUSY: u64 = 2048;
/// A sheaf holds so many bytes of objects at most, or the fewest objects that there are sheaves for.
const BYTES_MAX: usize = 128 * 1024;
/// The same where a barn is busy.
const BYTES_MAX_BUSY: usize = 1024 * 1024;
/// The same of what stays constructed: a slab's or so, for who frees may have to destroy as much.
const BYTES_MAX_CONSTRUCTED: usize = 64 * 1024;
/// The same of a cache's first sheaves.
const BYTES_FIRST: usize = 4 * 1024;

/// Which of [`CAPACITIES`] new sheaves have.
#[derive(Debug)]
pub(super) struct Capacity {
    index: AtomicU32,
    first: u32,
    most: u32,
    /// The most where a barn is busy.
    busy: u32,
}

/// The largest of [`CAPACITIES`] with which objects of that size are no more bytes.
fn index_for(size: usize, bytes: usize) -> u32 {
    CAPACITIES.iter().rposition(|capacity| capacity * size <= bytes).unwrap_or(0) as u32
}

impl Capacity {
    pub(super) fn of(Shape { size, mark, .. }: Shape) -> Capacity {
        let [most, busy] = match mark {
            0 => [BYTES_MAX, BYTES_MAX_BUSY],
            _ => [BYTES_MAX_CONSTRUCTED; 2],
        };
        let first = index_for(size, BYTES_FIRST);
        let index = AtomicU32::new(first);
        Capacity { index, first, most: index_for(size, most), busy: index_for(size, busy) }
    }

    // Relaxed, all of it: an estimate of what is good.

    pub(super) fn index(&self) -> usize {
        self.index.load(Relaxed) as usize
    }

    /// Larger sheaves for who trades often: at this number of trades of a barn, which says whether it is busy.
    pub(super) fn adapt(&self, trades: u64, is_busy: impl FnOnce() -> bool) {
        let index = self.index.load(Relaxed);
        let is_to_grow = match index < self.most {
            true => trades.is_multiple_of(TRADES_TO_GROW),
            false => index < self.busy && trades.is_multiple_of(TRADES_TO_GROW_BUSY) && is_busy(),
        };
        if is_to_grow {
            self.index.store(index + 1, Relaxed);
        }
    }

    /// New sheaves are small again.
    pub(super) fn reset(&self) {
        self.index.store(self.first, Relaxed);
    }
}

#[cfg(all(test, not(thiscpu_model)))]
mod tests {
    use super::*;

    /// What sheaves hold after so many trades.
    fn after(capacity: &Capacity, trades: u64, is_busy: bool) -> usize {
        (1..=trades).for_each(|number| capacity.adapt(number, || is_busy));
        CAPACITIES[capacity.index()]
    }

    #[test]
    fn sheaves_grow_with_trades_and_further_where_a_stock_is_busy() {
        let shape = Shape::of(1024);
        let capacity = Capacity::of(shape);
        assert_eq!(CAPACITIES[capacity.index()], 4);
        assert_eq!(after(&capacity, 31, true), 4);
        assert_eq!(after(&capacity, 32, true), 12);
        assert_eq!(after(&capacity, 100_000, false), 124);
        assert_eq!(after(&capacity, 2047, true), 124);
        assert_eq!(after(&capacity, 2048, true), 252);
        assert_eq!(after(&capacity, 100_000, true), 1020);
        capacity.reset();
        assert_eq!(CAPACITIES[capacity.index()], 4);
        assert_eq!(after(&Capacity::of(Shape { mark: 1016, ..shape }), 100_000, true), 60);
        // There are no fewer objects in a sheaf, however large they are, and no more.
        assert_eq!(after(&Capacity::of(Shape::of(1024 * 1024)), 100_000, true), 4);
        assert_eq!(after(&Capacity::of(Shape::of(16)), 100_000, true), 1020);
    }
}

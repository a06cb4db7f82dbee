//! The kernel's counter of free blocks, as XFS used it in 2015, and a patch to make it faster.
//!
//! A first comparison chooses the batch: 1 if the value may be near zero. Then the units are
//! subtracted. A second comparison checks that there were enough; if not, they are added again.
//! Each comparison near the limit takes a sum. Meanwhile other threads are refused because of units
//! that nobody gets: the limit holds, but refusals can be wrong. Released units are added with the
//! large batch, without a comparison.

use super::Contender;
use crate::contenders::percpu_counter::PercpuCounter;

/// The batch far from the limit, and the assumed content of a lane in each comparison.
const BATCH: i64 = 1024;

pub(crate) struct Compared<const TWICE: bool>(PercpuCounter);

/// `compare-twice`, design E.
pub(crate) type CompareTwice = Compared<true>;

/// `compare-once`: the patch, from October 2015.
///
/// If the first comparison took a sum, that sum also decides whether there are enough units, and
/// the second comparison is skipped. Two threads that see the last unit both get it.
pub(crate) type CompareOnce = Compared<false>;

impl<const TWICE: bool> Contender for Compared<TWICE> {
    const IS_RIGHT: bool = false;

    fn new(limit: u64) -> Self {
        Self(PercpuCounter::new(limit as i64))
    }

    #[inline(always)]
    fn try_acquire(&self, n: u64) -> bool {
        let (ordering, sum) = self.0.compare(2 * BATCH, BATCH);
        let deciding = sum.filter(|_| !TWICE);
        if deciding.is_some_and(|sum| sum < n as i64) {
            return false;
        }
        let batch = if ordering.is_lt() { 1 } else { BATCH };
        self.0.add(-(n as i64), batch);
        if deciding.is_some() || self.0.compare(0, BATCH).0.is_ge() {
            return true;
        }
        self.0.add(n as i64, batch);
        false
    }

    #[inline(always)]
    fn release(&self, n: u64) {
        self.0.add(n as i64, BATCH);
    }

    fn available(&self) -> i64 {
        self.0.sum()
    }
}

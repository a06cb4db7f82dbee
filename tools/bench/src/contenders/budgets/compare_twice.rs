//! `compare-twice`, design E: the kernel's counter of free blocks, as XFS used it in 2015.
//!
//! A compare chooses the batch, 1 when the value may be near the end; the units are subtracted; a second
//! compare sees whether they were there, and if not they are added again. Each compare near the limit is a
//! sum. Meanwhile others are refused because of units that were never taken: the limit holds, but
//! refusals can be wrong. What is freed is added with the large batch, without a compare.

use super::Contender;
use crate::contenders::percpu_counter::PercpuCounter;

/// How much a lane gathers far from the limit, and what lanes are reckoned to hold in each compare.
pub(super) const BATCH: i64 = 1024;

/// The free units.
pub(crate) struct CompareTwice(PercpuCounter);

impl Contender for CompareTwice {
    const IS_RIGHT: bool = false;

    fn new(limit: u64) -> Self {
        Self(PercpuCounter::new(limit as i64))
    }

    #[inline(always)]
    fn try_acquire(&self, n: u64) -> bool {
        let is_near = self.0.compare(2 * BATCH, BATCH).0.is_lt();
        let batch = if is_near { 1 } else { BATCH };
        self.0.add(-(n as i64), batch);
        if self.0.compare(0, BATCH).0.is_ge() {
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

//! `compare-twice`, design E: the kernel's counter of free blocks, as XFS used it in 2015.
//!
//! A compare chooses the batch, 1 when the value may be near the end; the units are subtracted; a second
//! compare sees whether they were there, and if not they are added again. Each compare near the limit is a
//! sum. Meanwhile others are refused because of units that were never taken: the limit holds, but
//! refusals can be wrong.

use super::Contender;
use crate::contenders::percpu_counter::PercpuCounter;

/// How much a lane gathers far from the limit.
pub(super) const BATCH: i64 = 1024;

/// The free units.
pub(crate) struct CompareTwice(PercpuCounter);

/// Near the limit each add goes to the total, so that comparing is exact for whoever has the lock.
pub(super) fn batch(is_near: bool) -> i64 {
    if is_near { 1 } else { BATCH }
}

impl Contender for CompareTwice {
    const IS_RIGHT: bool = false;

    fn new(limit: u64) -> Self {
        Self(PercpuCounter::new(limit as i64))
    }

    #[inline(always)]
    fn try_acquire(&self, n: u64) -> bool {
        let batch = batch(self.0.compare(2 * BATCH, BATCH).0.is_lt());
        self.0.add(-(n as i64), batch);
        if self.0.compare(0, batch).0.is_ge() {
            return true;
        }
        self.0.add(n as i64, batch);
        false
    }

    #[inline(always)]
    fn release(&self, n: u64) {
        let batch = batch(self.0.compare(2 * BATCH, BATCH).0.is_lt());
        self.0.add(n as i64, batch);
    }

    fn available(&self) -> i64 {
        self.0.sum()
    }
}

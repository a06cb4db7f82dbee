//! `compare-once`: the first patch to make design E faster, from October 2015.
//!
//! If the first comparison took a sum, that sum also decides whether there are enough units, and
//! the second comparison is skipped. Two threads that see the last unit both get it.

use super::{Contender, compare_twice::BATCH};
use crate::contenders::percpu_counter::PercpuCounter;

/// The free units.
pub(crate) struct CompareOnce(PercpuCounter);

impl Contender for CompareOnce {
    const IS_RIGHT: bool = false;

    fn new(limit: u64) -> Self {
        Self(PercpuCounter::new(limit as i64))
    }

    #[inline(always)]
    fn try_acquire(&self, n: u64) -> bool {
        let (ordering, sum) = self.0.compare(2 * BATCH, BATCH);
        if sum.is_some_and(|sum| sum < n as i64) {
            return false;
        }
        let batch = if ordering.is_lt() { 1 } else { BATCH };
        self.0.add(-(n as i64), batch);
        if sum.is_some() || self.0.compare(0, BATCH).0.is_ge() {
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

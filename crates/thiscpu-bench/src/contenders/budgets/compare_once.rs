//! `compare-once`: the first patch to make design E faster, of October 2015.
//!
//! Where the first compare took a sum, that sum also decides whether the units are there, and the second
//! compare is left out. Two threads that see the last unit both get it.

use super::{Contender, compare_twice};
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
        let (ordering, sum) = self.0.compare(2 * compare_twice::BATCH, compare_twice::BATCH);
        let batch = compare_twice::batch(ordering.is_lt());
        if sum.is_some_and(|sum| sum < n as i64) {
            return false;
        }
        self.0.add(-(n as i64), batch);
        if sum.is_some() || self.0.compare(0, batch).0.is_ge() {
            return true;
        }
        self.0.add(n as i64, batch);
        false
    }

    #[inline(always)]
    fn release(&self, n: u64) {
        let is_near = self.0.compare(2 * compare_twice::BATCH, compare_twice::BATCH).0.is_lt();
        self.0.add(n as i64, compare_twice::batch(is_near));
    }

    fn available(&self) -> i64 {
        self.0.sum()
    }
}

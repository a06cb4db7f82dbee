//! `spinlock-fold`, design A: the kernel's counter, with the kernel's batch.

use std::cmp::Ordering;

use super::Contender;
use crate::contenders::{lanes, percpu_counter::PercpuCounter};

/// The counter, and the batch of its lanes.
pub(crate) struct SpinlockFold {
    counter: PercpuCounter,
    batch: i64,
}

impl Contender for SpinlockFold {
    fn try_new() -> anyhow::Result<Self> {
        Ok(Self { counter: PercpuCounter::new(0), batch: lanes::batch() })
    }

    #[inline(always)]
    fn add(&self, n: i64) {
        self.counter.add(n, self.batch);
    }

    fn sum(&self) -> i64 {
        self.counter.sum()
    }

    #[inline]
    fn compare(&self, limit: i64) -> Ordering {
        self.counter.compare(limit, self.batch).0
    }
}

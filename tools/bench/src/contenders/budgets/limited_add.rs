//! `limited-add`: the kernel's counter with the limited add of Linux 6.7.
//!
//! While the total is further from the limit than all lanes can hold back, units go to the lane
//! without a lock. Otherwise the thread takes the lock, and adds the lanes up if the total alone
//! cannot decide. Other threads still add to their lanes meanwhile, so the limit can be overshot.
//!
//! The kernel changes its lane with interrupts off; here a compare-exchange changes it.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use super::Contender;
use crate::contenders::{lanes::Batch, percpu_counter::PercpuCounter};

pub(crate) struct LimitedAdd {
    held: PercpuCounter,
    limit: i64,
    batch: Batch,
}

impl LimitedAdd {
    /// Adds to the lane if this cannot exceed the batch or, by the kernel's estimate, the limit.
    #[inline(always)]
    fn add_to_lane(&self, lane: &AtomicI64, n: i64) -> bool {
        let is_far = n < 0 || self.held.rough() + self.batch.held_back_max <= self.limit;
        let fits = |count: i64| Some(count + n).filter(|sum| sum.abs() <= self.batch.size);
        // Relaxed: sums and folds need only the lane's own modification order.
        is_far && lane.fetch_update(Relaxed, Relaxed, fits).is_ok()
    }
}

impl Contender for LimitedAdd {
    const IS_RIGHT: bool = false;

    fn new(limit: u64) -> Self {
        Self { held: PercpuCounter::new(0), limit: limit as i64, batch: Batch::default() }
    }

    #[inline(always)]
    fn try_acquire(&self, n: u64) -> bool {
        let (n, lane) = (n as i64, self.held.lane());
        if self.add_to_lane(lane, n) {
            return true;
        }
        self.held.locked(|held| {
            let after = self.held.rough() + n;
            let is_surely_above = after - self.batch.held_back_max > self.limit;
            let is_surely_below = after + self.batch.held_back_max <= self.limit;
            let fits = !is_surely_above && (is_surely_below || held.sum() + n <= self.limit);
            if fits {
                held.fold(n, lane);
            }
            fits
        })
    }

    #[inline(always)]
    fn release(&self, n: u64) {
        self.held.add(-(n as i64), self.batch.size);
    }

    fn available(&self) -> i64 {
        self.limit - self.held.sum()
    }
}

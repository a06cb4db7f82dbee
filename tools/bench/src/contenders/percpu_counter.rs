//! The kernel's counter (design A): lanes whose batches are folded into a total under a spinlock.
//!
//! An add that fills its lane's batch moves the lane into the total under the lock. An amount as
//! large as the batch always takes the lock. The sum holds the lock, so that nothing is folded
//! meanwhile, and adds the lanes up; adds below the batch go on, so the sum is no snapshot.
//!
//! The kernel updates its lane by plain instructions with preemption off; here that is one atomic
//! read-modify-write on the lane. A waiter spins, then yields, because a preempted holder cannot
//! be ruled out.

use std::{
    cmp::Ordering,
    sync::atomic::{
        AtomicBool, AtomicI64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use super::lanes::{self, Lanes, Padded};
use crate::cpus;

/// The total and its lock on one line, and the lanes.
pub(super) struct PercpuCounter {
    shared: Padded<Total>,
    lanes: Lanes,
    /// CPUs online when it was made, by which the kernel reckons what lanes hold back.
    cpus: i64,
}

#[derive(Default)]
struct Total {
    is_locked: AtomicBool,
    value: AtomicI64,
}

/// The counter while its lock is held.
pub(super) struct Locked<'a>(&'a PercpuCounter);

impl PercpuCounter {
    pub(super) fn new(value: i64) -> Self {
        let total = Total { value: AtomicI64::new(value), ..Total::default() };
        Self { shared: Padded::new(total), lanes: Lanes::new(), cpus: cpus::online() as i64 }
    }

    /// Runs `work` as the only one who holds the lock.
    pub(super) fn locked<T>(&self, work: impl FnOnce(&Locked<'_>) -> T) -> T {
        loop {
            // Acquire: pairs with the Release store below, by the holder before us.
            if !self.shared.is_locked.swap(true, Acquire) {
                break;
            }
            // Relaxed: only a hint that the swap may now succeed.
            lanes::wait_until(|| !self.shared.is_locked.load(Relaxed));
        }
        let outcome = work(&Locked(self));
        // Release: pairs with the Acquire swap above, by the next holder.
        self.shared.is_locked.store(false, Release);
        outcome
    }

    #[inline(always)]
    pub(super) fn add(&self, n: i64, batch: i64) {
        let lane = self.lane();
        if n.unsigned_abs() >= batch.unsigned_abs() {
            return self.locked(|counter| counter.fold(n, lane));
        }
        // Relaxed: a lane is only ever added up.
        let count = lane.fetch_add(n, Relaxed).wrapping_add(n);
        if count.unsigned_abs() >= batch.unsigned_abs() {
            self.locked(|counter| counter.fold(0, lane));
        }
    }

    /// This CPU's lane.
    #[inline(always)]
    pub(super) fn lane(&self) -> &AtomicI64 {
        self.lanes.here()
    }

    /// The total, without what is in lanes.
    #[inline(always)]
    pub(super) fn rough(&self) -> i64 {
        // Relaxed: the rough value may be of any recent moment.
        self.shared.value.load(Relaxed)
    }

    pub(super) fn sum(&self) -> i64 {
        self.locked(|counter| counter.sum())
    }

    /// Compares the kernel's way: the total decides when it is further from the limit than the lanes can
    /// hold back by the kernel's reckoning; otherwise the sum does, which is handed back too.
    #[inline]
    pub(super) fn compare(&self, limit: i64, batch: i64) -> (Ordering, Option<i64>) {
        let rough = self.rough();
        if rough.abs_diff(limit) > (batch * self.cpus).unsigned_abs() {
            (rough.cmp(&limit), None)
        } else {
            let sum = self.sum();
            (sum.cmp(&limit), Some(sum))
        }
    }
}

impl Locked<'_> {
    /// Moves `n` and all that the lane holds into the total.
    pub(super) fn fold(&self, n: i64, lane: &AtomicI64) {
        // Relaxed, all three: the lock orders folds against folds and sums, and an add that races for
        // the lane needs no more than the lane's own modification order.
        let folded = n.wrapping_add(lane.swap(0, Relaxed));
        let total = self.0.shared.value.load(Relaxed);
        self.0.shared.value.store(total.wrapping_add(folded), Relaxed);
    }

    pub(super) fn sum(&self) -> i64 {
        self.0.rough().wrapping_add(self.0.lanes.sum())
    }
}

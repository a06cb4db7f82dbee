//! The kernel's counter (design A): lanes whose batches are folded into a total under a spinlock.
//!
//! An add that fills its lane's batch moves the lane into the total under the lock. An amount as
//! large as the batch always takes the lock. A sum adds the lanes up while it holds the lock, which
//! keeps folds out. Adds below the batch continue, so the sum is not a snapshot.
//!
//! The kernel updates its lane with plain instructions while preemption is off. Here one atomic
//! read-modify-write updates the lane. A waiter spins, then yields, because the holder of the lock
//! may have been preempted.

use std::{
    cmp::Ordering,
    sync::atomic::{AtomicI64, Ordering::Relaxed},
};

use super::lanes::{Lanes, Padded, SpinLock, rough_then_exact};
use crate::cpus;

/// The lanes, and the total with its lock on one cache line.
pub(super) struct PercpuCounter {
    shared: Padded<Total>,
    lanes: Lanes,
    /// CPUs online at creation, from which the kernel estimates how much the lanes hold back.
    cpus: i64,
}

#[derive(Default)]
struct Total {
    lock: SpinLock,
    value: AtomicI64,
}

pub(super) struct Locked<'a>(&'a PercpuCounter);

impl PercpuCounter {
    pub(super) fn new(value: i64) -> Self {
        let total = Total { value: AtomicI64::new(value), ..Total::default() };
        Self { shared: Padded::new(total), lanes: Lanes::default(), cpus: cpus::online() as i64 }
    }

    pub(super) fn locked<T>(&self, work: impl FnOnce(&Locked<'_>) -> T) -> T {
        self.shared.lock.locked(|| work(&Locked(self)))
    }

    #[inline(always)]
    pub(super) fn add(&self, n: i64, batch: i64) {
        self.lanes.add(n, batch, |n, lane| self.locked(|counter| counter.fold(n, lane)));
    }

    #[inline(always)]
    pub(super) fn lane(&self) -> &AtomicI64 {
        self.lanes.here()
    }

    /// Returns the total, without the amounts in lanes.
    #[inline(always)]
    pub(super) fn rough(&self) -> i64 {
        // Relaxed: any recent total will do.
        self.shared.value.load(Relaxed)
    }

    pub(super) fn sum(&self) -> i64 {
        self.locked(|counter| counter.sum())
    }

    /// Compares the counter with `limit` as the kernel does; returns the sum if that decided.
    #[inline]
    pub(super) fn compare(&self, limit: i64, batch: i64) -> (Ordering, Option<i64>) {
        rough_then_exact(self.rough(), limit, batch * self.cpus, || self.sum())
    }
}

impl Locked<'_> {
    /// Moves `n` and the whole content of the lane into the total.
    pub(super) fn fold(&self, n: i64, lane: &AtomicI64) {
        // Relaxed, all three: the lock orders folds against each other and against sums. An add
        // that races for the lane needs only the lane's own modification order.
        let folded = n.wrapping_add(lane.swap(0, Relaxed));
        let total = self.0.shared.value.load(Relaxed);
        self.0.shared.value.store(total.wrapping_add(folded), Relaxed);
    }

    pub(super) fn sum(&self) -> i64 {
        self.0.rough().wrapping_add(self.0.lanes.sum())
    }
}

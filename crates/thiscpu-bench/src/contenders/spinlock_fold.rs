//! `spinlock-fold`, design A: lanes whose batches are folded into a total under a spinlock.
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

use super::{
    Contender,
    lanes::{self, Lanes, Padded},
    rough_then_exact,
};

/// The total and its lock on one line, and the lanes.
pub(crate) struct SpinlockFold {
    shared: Padded<Total>,
    lanes: Lanes,
    batch: i64,
    held_back_max: i64,
}

#[derive(Default)]
struct Total {
    is_locked: AtomicBool,
    value: AtomicI64,
}

impl Total {
    /// Runs `work` as the only one who does.
    fn locked<T>(&self, work: impl FnOnce() -> T) -> T {
        loop {
            // Acquire: pairs with the Release store below, by the holder before us.
            if !self.is_locked.swap(true, Acquire) {
                break;
            }
            // Relaxed: only a hint that the swap may now succeed.
            lanes::wait_until(|| !self.is_locked.load(Relaxed));
        }
        let outcome = work();
        // Release: pairs with the Acquire swap above, by the next holder.
        self.is_locked.store(false, Release);
        outcome
    }
}

impl SpinlockFold {
    /// Moves `n` and all that the lane holds into the total.
    fn fold(&self, n: i64, lane: &AtomicI64) {
        self.shared.locked(|| {
            // Relaxed, all three: the lock orders folds against folds and sums, and an add that
            // races for the lane needs no more than the lane's own modification order.
            let folded = n.wrapping_add(lane.swap(0, Relaxed));
            let total = self.shared.value.load(Relaxed);
            self.shared.value.store(total.wrapping_add(folded), Relaxed);
        });
    }
}

impl Contender for SpinlockFold {
    fn try_new() -> anyhow::Result<Self> {
        let batch = lanes::batch();
        Ok(Self {
            shared: Padded::default(),
            lanes: Lanes::new(),
            batch,
            held_back_max: lanes::held_back_max(batch),
        })
    }

    #[inline(always)]
    fn add(&self, n: i64) {
        let lane = self.lanes.here();
        if n.unsigned_abs() >= self.batch.unsigned_abs() {
            return self.fold(n, lane);
        }
        // Relaxed: a lane is only ever added up.
        let count = lane.fetch_add(n, Relaxed).wrapping_add(n);
        if count.unsigned_abs() >= self.batch.unsigned_abs() {
            self.fold(0, lane);
        }
    }

    fn sum(&self) -> i64 {
        // Relaxed: the value only changes under the lock, which we hold.
        self.shared.locked(|| (self.shared.value.load(Relaxed)).wrapping_add(self.lanes.sum()))
    }

    #[inline]
    fn compare(&self, limit: i64) -> Ordering {
        // Relaxed: the rough value may be of any recent moment.
        let rough = self.shared.value.load(Relaxed);
        rough_then_exact(rough, limit, self.held_back_max, || self.sum())
    }
}

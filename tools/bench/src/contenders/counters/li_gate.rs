//! `li-gate`, design C: a gate for folding adders and a gate for sums.
//!
//! An adder that fills its lane's batch announces itself, and steps back while a sum runs; a sum
//! announces itself and waits for adders that were announced. A fold is therefore never seen half
//! done, but adders wait for sums, and every fold touches two shared words. Adds below the batch
//! pass no gate, so the sum is no snapshot. The callback that folds a dead CPU's lane has no
//! counterpart: a lane here outlives its CPU.
//!
//! The kernel updates its lane by plain instructions with preemption off; here that is one atomic
//! read-modify-write on the lane. Waiting spins, then yields.

use std::{
    cmp::Ordering,
    sync::atomic::{
        AtomicI64, AtomicU64,
        Ordering::{Relaxed, Release, SeqCst},
    },
};

use super::{Contender, rough_then_exact};
use crate::contenders::lanes::{self, Lanes, Padded};

/// The gates, the total and the lanes.
pub(crate) struct LiGate {
    sums: Padded<AtomicU64>,
    shared: Padded<Shared>,
    lanes: Lanes,
    batch: i64,
    held_back_max: i64,
}

#[derive(Default)]
struct Shared {
    folders: AtomicU64,
    total: AtomicI64,
}

impl LiGate {
    /// Moves `n` and all that the lane holds into the total, when no sum runs.
    fn fold(&self, n: i64, lane: &AtomicI64) {
        loop {
            // SeqCst, both: announce, then look. Pairs with the same two steps in `sum`, so that
            // of a folder and a sum at least one sees the other.
            self.shared.folders.fetch_add(1, SeqCst);
            if self.sums.load(SeqCst) == 0 {
                break;
            }
            // Relaxed: nothing was done that a sum would have to see.
            self.shared.folders.fetch_sub(1, Relaxed);
            // Relaxed: only a hint that it is worth announcing again.
            lanes::wait_until(|| self.sums.load(Relaxed) == 0);
        }
        // Relaxed, both: the gates order folds against sums, and folds commute.
        let folded = n.wrapping_add(lane.swap(0, Relaxed));
        self.shared.total.fetch_add(folded, Relaxed);
        // Release: pairs with the SeqCst load of `folders` in `sum`, which then sees the fold.
        self.shared.folders.fetch_sub(1, Release);
    }
}

impl Contender for LiGate {
    fn try_new() -> anyhow::Result<Self> {
        let batch = lanes::batch();
        Ok(Self {
            sums: Padded::default(),
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
        // SeqCst, both: announce, then look. Pairs with the same two steps in `fold`.
        self.sums.fetch_add(1, SeqCst);
        lanes::wait_until(|| self.shared.folders.load(SeqCst) == 0);
        // Relaxed: no fold is under way, and the loads above saw every one that was.
        let total = self.shared.total.load(Relaxed);
        let sum = total.wrapping_add(self.lanes.sum());
        // SeqCst: pairs with the SeqCst load of `sums` in `fold`; the walk is over before a folder
        // goes through.
        self.sums.fetch_sub(1, SeqCst);
        sum
    }

    #[inline]
    fn compare(&self, limit: i64) -> Ordering {
        // Relaxed: the rough value may be of any recent moment.
        let rough = self.shared.total.load(Relaxed);
        rough_then_exact(rough, limit, self.held_back_max, || self.sum())
    }
}

//! `li-gate`, design C: one gate for folding adders and one for sums.
//!
//! An adder that fills its lane's batch announces itself, and steps back while a sum runs. A sum
//! announces itself and waits for announced adders. No sum therefore sees half a fold, but adders
//! wait for sums, and every fold touches two shared words. Adds below the batch pass no gate, so
//! the sum is not a snapshot. The kernel's callback that folds a dead CPU's lane has no
//! counterpart, because a lane here outlives its CPU.
//!
//! The kernel updates its lane with plain instructions while preemption is off. Here one atomic
//! read-modify-write updates the lane. A waiter spins, then yields.

use std::{
    cmp::Ordering,
    sync::atomic::{
        AtomicI64, AtomicU64,
        Ordering::{Relaxed, Release, SeqCst},
    },
};

use super::Contender;
use crate::contenders::lanes::{self, Batch, Lanes, Padded};

#[derive(Default)]
pub(crate) struct LiGate {
    sums: Padded<AtomicU64>,
    shared: Padded<Shared>,
    lanes: Lanes,
    batch: Batch,
}

#[derive(Default)]
struct Shared {
    folders: AtomicU64,
    total: AtomicI64,
}

impl LiGate {
    /// Moves `n` and the whole content of the lane into the total, while no sum runs.
    fn fold(&self, n: i64, lane: &AtomicI64) {
        loop {
            // SeqCst, both: announce, then look. Pairs with the announcement and the look in `sum`:
            // of a folder and a sum, at least one sees the other.
            self.shared.folders.fetch_add(1, SeqCst);
            if self.sums.load(SeqCst) == 0 {
                break;
            }
            // Relaxed: this thread has changed nothing that a sum must see.
            self.shared.folders.fetch_sub(1, Relaxed);
            // Relaxed: the load is only a hint that it is time to announce again.
            lanes::wait_until(|| self.sums.load(Relaxed) == 0);
        }
        // Relaxed, both: the gates order folds against sums, and folds commute.
        let folded = n.wrapping_add(lane.swap(0, Relaxed));
        self.shared.total.fetch_add(folded, Relaxed);
        // Release: pairs with the SeqCst load of `folders` in `sum`; that sum then sees the fold.
        self.shared.folders.fetch_sub(1, Release);
    }
}

impl Contender for LiGate {
    fn try_new() -> anyhow::Result<Self> {
        Ok(Self::default())
    }

    #[inline(always)]
    fn add(&self, n: i64) {
        self.lanes.add(n, self.batch.size, |n, lane| self.fold(n, lane));
    }

    fn sum(&self) -> i64 {
        // SeqCst, both: announce, then look. Pairs with the announcement and the look in `fold`.
        self.sums.fetch_add(1, SeqCst);
        lanes::wait_until(|| self.shared.folders.load(SeqCst) == 0);
        // Relaxed: no fold is in progress, and the loads above saw the end of every earlier one.
        let total = self.shared.total.load(Relaxed);
        let sum = total.wrapping_add(self.lanes.sum());
        // SeqCst: pairs with the SeqCst load of `sums` in `fold`. The walk ends before a folder
        // passes.
        self.sums.fetch_sub(1, SeqCst);
        sum
    }

    #[inline]
    fn compare(&self, limit: i64) -> Ordering {
        // Relaxed: any recent value will do.
        let rough = self.shared.total.load(Relaxed);
        lanes::rough_then_exact(rough, limit, self.batch.held_back_max, || self.sum()).0
    }
}

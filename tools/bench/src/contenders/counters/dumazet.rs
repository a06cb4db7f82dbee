//! `dumazet`, design B: an atomic total, and sums that announce themselves.
//!
//! An add that fills its lane's batch adds the lane to an atomic total and clears it. While sums
//! are in flight, adders use a second shared atomic. A sequence number counts folds: a sum that
//! sees it change starts over. The flaw found in review is kept: an adder that saw no sum adds its
//! count to the total and only then clears its lane. A sum that starts and ends between the two
//! steps counts that batch twice.
//!
//! The kernel updates its lane with plain instructions while preemption is off. Here one atomic
//! read-modify-write updates the lane. A fold subtracts from the lane exactly the amount it added
//! to the total, because another thread may have added to the lane meanwhile.

use std::{
    cmp::Ordering,
    sync::atomic::{
        AtomicI64, AtomicU64,
        Ordering::{Acquire, Relaxed, Release, SeqCst},
    },
};

use super::Contender;
use crate::contenders::lanes::{self, Batch, Lanes, Padded};

/// The shared words and the lanes.
///
/// The count of sums, which every add reads, has other cache lines than the words that every fold
/// writes.
#[derive(Default)]
pub(crate) struct Dumazet {
    sums_in_flight: Padded<AtomicU64>,
    shared: Padded<Shared>,
    lanes: Lanes,
    batch: Batch,
}

#[derive(Default)]
struct Shared {
    total: AtomicI64,
    folds: AtomicU64,
    diverted: AtomicI64,
}

impl Dumazet {
    /// Adds `folded` to the total, then subtracts `held`, the lane's part of it, from the lane.
    fn fold(&self, folded: i64, held: i64, lane: &AtomicI64) {
        // Relaxed: the sequence number below orders this add for sums.
        self.shared.total.fetch_add(folded, Relaxed);
        // Release: pairs with the first Acquire load in `sum`. A sum that sees this increment sees
        // the fold in the total.
        self.shared.folds.fetch_add(1, Release);
        if held != 0 {
            // Release: pairs with the Acquire fence in `sum`. A sum that sees the lane cleared sees
            // the increment of `folds` too.
            lane.fetch_sub(held, Release);
        }
    }

    fn rough(&self) -> i64 {
        // Relaxed: any recent value will do.
        let diverted = self.shared.diverted.load(Relaxed);
        self.shared.total.load(Relaxed).wrapping_add(diverted)
    }
}

impl Contender for Dumazet {
    fn try_new() -> anyhow::Result<Self> {
        Ok(Self::default())
    }

    #[inline(always)]
    fn add(&self, n: i64) {
        // Relaxed: pairs with nothing. An adder may see an announcement late, which is this
        // design's flaw.
        if self.sums_in_flight.load(Relaxed) != 0 {
            self.shared.diverted.fetch_add(n, Relaxed);
            return;
        }
        let lane = self.lanes.here();
        if n.unsigned_abs() >= self.batch.size.unsigned_abs() {
            // Relaxed: `fold` subtracts exactly this value, so a stale one is correct too.
            let held = lane.load(Relaxed);
            return self.fold(n.wrapping_add(held), held, lane);
        }
        // Relaxed: sums and folds need only the lane's own modification order.
        let count = lane.fetch_add(n, Relaxed).wrapping_add(n);
        if count.unsigned_abs() >= self.batch.size.unsigned_abs() {
            self.fold(count, count, lane);
        }
    }

    fn sum(&self) -> i64 {
        // SeqCst: the announcement comes before the walk below. Adders read it with the Relaxed
        // load in `add`.
        self.sums_in_flight.fetch_add(1, SeqCst);
        let sum = loop {
            // Acquire: pairs with the Release increment in `fold`.
            let folds_before = self.shared.folds.load(Acquire);
            let sum = self.rough().wrapping_add(self.lanes.sum());
            // Acquire: pairs with the Release subtraction in `fold`. If the loads above saw a lane
            // that a fold has cleared, the load below sees that fold's increment.
            std::sync::atomic::fence(Acquire);
            if self.shared.folds.load(Acquire) == folds_before {
                break sum;
            }
        };
        // Release: the walk above ends before adders, which read this with the Relaxed load in
        // `add`, return to their lanes.
        self.sums_in_flight.fetch_sub(1, Release);
        sum
    }

    #[inline]
    fn compare(&self, limit: i64) -> Ordering {
        lanes::rough_then_exact(self.rough(), limit, self.batch.held_back_max, || self.sum()).0
    }
}

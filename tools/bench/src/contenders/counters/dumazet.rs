//! `dumazet`, design B: an atomic total, and sums that announce themselves.
//!
//! An add that fills its lane's batch adds the lane to an atomic total and clears it. A count of
//! sums in flight sends adders to a second shared atomic, and a sequence number tells a sum that a
//! fold happened, so that it must start over. The flaw found in review is kept: an adder that saw
//! no sum adds its count to the total and only then clears its lane, and a sum that starts and ends
//! between the two counts that batch twice.
//!
//! The kernel updates its lane by plain instructions with preemption off; here that is one atomic
//! read-modify-write on the lane, and a fold takes back from the lane what it gave to the total,
//! because another thread may have added to the lane meanwhile.

use std::{
    cmp::Ordering,
    sync::atomic::{
        AtomicI64, AtomicU64,
        Ordering::{Acquire, Relaxed, Release, SeqCst},
    },
};

use super::{Contender, rough_then_exact};
use crate::contenders::lanes::{self, Lanes, Padded};

/// The shared words and the lanes. The count of sums, which every add reads, is kept apart from the
/// words that every fold writes.
pub(crate) struct Dumazet {
    sums_in_flight: Padded<AtomicU64>,
    shared: Padded<Shared>,
    lanes: Lanes,
    batch: i64,
    held_back_max: i64,
}

#[derive(Default)]
struct Shared {
    total: AtomicI64,
    folds: AtomicU64,
    diverted: AtomicI64,
}

impl Dumazet {
    /// Adds `folded` to the total, then takes from the lane the part of it that the lane held.
    fn fold(&self, folded: i64, held: i64, lane: &AtomicI64) {
        // Relaxed: the sequence number below is what sums look at.
        self.shared.total.fetch_add(folded, Relaxed);
        // Release: pairs with the first Acquire load in `sum`; a sum that starts after this fold
        // was counted sees it in the total.
        self.shared.folds.fetch_add(1, Release);
        if held != 0 {
            // Release: pairs with the Acquire fence in `sum`; whoever sees the lane cleared sees
            // the fold.
            lane.fetch_sub(held, Release);
        }
    }

    fn rough(&self) -> i64 {
        // Relaxed: the rough value may be of any recent moment.
        let diverted = self.shared.diverted.load(Relaxed);
        self.shared.total.load(Relaxed).wrapping_add(diverted)
    }
}

impl Contender for Dumazet {
    fn try_new() -> anyhow::Result<Self> {
        let batch = lanes::batch();
        Ok(Self {
            sums_in_flight: Padded::default(),
            shared: Padded::default(),
            lanes: Lanes::new(),
            batch,
            held_back_max: lanes::held_back_max(batch),
        })
    }

    #[inline(always)]
    fn add(&self, n: i64) {
        // Relaxed: seeing an announcement late is the flaw this design has; pairs with nothing.
        if self.sums_in_flight.load(Relaxed) != 0 {
            self.shared.diverted.fetch_add(n, Relaxed);
            return;
        }
        let lane = self.lanes.here();
        if n.unsigned_abs() >= self.batch.unsigned_abs() {
            // Relaxed: what the lane holds now is what goes with `n`.
            let held = lane.load(Relaxed);
            return self.fold(n.wrapping_add(held), held, lane);
        }
        // Relaxed: a lane is only ever added up.
        let count = lane.fetch_add(n, Relaxed).wrapping_add(n);
        if count.unsigned_abs() >= self.batch.unsigned_abs() {
            self.fold(count, count, lane);
        }
    }

    fn sum(&self) -> i64 {
        // SeqCst: the announcement goes out before the walk below begins; adders look at it with a
        // Relaxed load in `add`.
        self.sums_in_flight.fetch_add(1, SeqCst);
        let sum = loop {
            // Acquire: pairs with the Release increment in `fold`.
            let folds_before = self.shared.folds.load(Acquire);
            let sum = self.rough().wrapping_add(self.lanes.sum());
            // The fence makes the loads above come first: a fold whose cleared lane they saw is
            // counted in the load below. Pairs with the Release subtraction in `fold`.
            std::sync::atomic::fence(Acquire);
            if self.shared.folds.load(Acquire) == folds_before {
                break sum;
            }
        };
        // Release: the walk above is over before adders, which look at this with a Relaxed load in
        // `add`, return to their lanes.
        self.sums_in_flight.fetch_sub(1, Release);
        sum
    }

    #[inline]
    fn compare(&self, limit: i64) -> Ordering {
        rough_then_exact(self.rough(), limit, self.held_back_max, || self.sum())
    }
}

//! Signals that arrive at random moments.

use std::sync::atomic::Ordering::SeqCst;

use fastrand::Rng;

use super::rest;
use crate::handlers;
use crate::shared::Shared;

const REST_MICROS_MAX: u64 = 300;

/// Sends signals to random workers until the run is over.
pub(crate) fn run(shared: &Shared, seed: u64) {
    let mut random = Rng::with_seed(seed);
    while !shared.is_over() {
        for _ in 0..random.u8(1..6) {
            let tid = shared.slots[random.usize(..shared.slots.len())].tid.load(SeqCst);
            if tid != 0 {
                handlers::send(tid);
            }
        }
        rest(&mut random, REST_MICROS_MAX);
    }
}

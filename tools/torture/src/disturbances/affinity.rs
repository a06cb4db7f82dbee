//! Moves of threads from CPU to CPU, in the middle of anything.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use fastrand::Rng;
use thiscpu_test_support::cpus;

use super::rest;
use crate::shared::Shared;

/// The number of rounds between checks for new CPUs.
const ROUNDS_PER_CHECK: u64 = 1000;
const REST_MICROS_MAX: u64 = 500;

/// Moves threads until the run is over.
pub(crate) fn run(shared: &Shared, seed: u64) {
    let mut random = Rng::with_seed(seed);
    // CPUs that have gone offline stay in the list: the kernel refuses a move to them, and they may
    // come back.
    let mut known = Vec::new();
    for round in 0.. {
        if shared.is_over() {
            return;
        }
        if round % ROUNDS_PER_CHECK == 0 {
            known.extend(cpus::allowed());
            known.sort_unstable();
            known.dedup();
        }
        let tid = shared.slots[random.usize(..shared.slots.len())].tid.load(SeqCst);
        if tid != 0 && move_thread(tid, &known, &mut random) {
            shared.events.moves.fetch_add(1, Relaxed);
        }
        rest(&mut random, REST_MICROS_MAX);
    }
}

/// Confines a thread to one CPU, to some, or to all, and returns whether the kernel did so.
fn move_thread(tid: i32, known: &[usize], random: &mut Rng) -> bool {
    match random.u8(..4) {
        0 => cpus::confine(tid, known.iter().copied()),
        1 => cpus::confine(tid, known.iter().copied().filter(|_| random.bool())),
        _ => cpus::confine(tid, [known[random.usize(..known.len())]]),
    }
}

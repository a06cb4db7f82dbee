//! Threads are moved from CPU to CPU, whatever they are in the middle of.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use fastrand::Rng;

use super::rest;
use crate::cpus;
use crate::world::World;

/// How often it is looked whether CPUs have come.
const ROUNDS_PER_LOOK: u64 = 1000;
const REST_MICROS_MAX: u64 = 500;

/// Moves threads until the run is over.
pub(crate) fn run(world: &World, seed: u64) {
    let mut random = Rng::with_seed(seed);
    // CPUs that have gone offline stay in the list: to ask for one is refused, and they may come
    // back.
    let mut known = Vec::new();
    for round in 0.. {
        if world.is_over() {
            return;
        }
        if round % ROUNDS_PER_LOOK == 0 {
            known.extend(cpus::allowed());
            known.sort_unstable();
            known.dedup();
        }
        let tid = world.slots[random.usize(..world.slots.len())].tid.load(SeqCst);
        if tid != 0 && move_somewhere(tid, &known, &mut random) {
            world.events.moves.fetch_add(1, Relaxed);
        }
        rest(&mut random, REST_MICROS_MAX);
    }
}

/// Moves the calling thread to one of the CPUs that there were at the beginning. Async-signal-safe,
/// but for `errno`.
pub(crate) fn wander(world: &World, random: &mut Rng) {
    if let Some(&cpu) = random.choice(&world.cpus)
        && cpus::confine(cpus::tid(), [cpu])
    {
        world.events.moves.fetch_add(1, Relaxed);
    }
}

/// To one CPU, to some, or wherever it likes.
fn move_somewhere(tid: i32, known: &[usize], random: &mut Rng) -> bool {
    match random.u8(..4) {
        0 => cpus::confine(tid, known.iter().copied()),
        1 => cpus::confine(tid, known.iter().copied().filter(|_| random.bool())),
        _ => cpus::confine(tid, [known[random.usize(..known.len())]]),
    }
}

//! Threads that come and go: their registrations, indices and claims come and go with them.

use std::sync::atomic::Ordering::Relaxed;
use std::thread::{Scope, ScopedJoinHandle};

use fastrand::Rng;

use super::rest;
use crate::run::spawn;
use crate::worker::{self, Life};
use crate::world::{SHORT_LIVED, World};

const TURNS_MAX: u64 = 200;
const REST_MICROS_MAX: u64 = 2000;

/// Starts short-lived threads in the slots from `first_slot` until the run is over.
pub(crate) fn run<'scope>(
    scope: &'scope Scope<'scope, '_>,
    world: &'scope World,
    first_slot: usize,
    seed: u64,
) {
    let mut random = Rng::with_seed(seed);
    let mut threads: [Option<ScopedJoinHandle<'scope, ()>>; SHORT_LIVED] = Default::default();
    for generation in 0.. {
        for (number, thread) in threads.iter_mut().enumerate() {
            // Its own panics are failures already; see `worker`.
            thread.take().map(ScopedJoinHandle::join);
            if world.is_over() {
                continue;
            }
            let turns = random.u64(1..TURNS_MAX);
            let life = Life {
                slot: first_slot + number,
                generation,
                turns,
                leaves_lanes_after: (random.u8(..4) == 0).then(|| random.u64(..turns)),
                has_timer: random.u8(..4) == 0,
            };
            // Where threads are scarce there is one less.
            *thread = spawn(scope, move || worker::live(world, life)).ok();
            world.events.short_lived.fetch_add(u64::from(thread.is_some()), Relaxed);
        }
        if world.is_over() {
            return;
        }
        rest(&mut random, REST_MICROS_MAX);
    }
}

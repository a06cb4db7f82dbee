//! Short-lived threads: registrations, lanes and claims come and go with them.

use std::sync::atomic::Ordering::Relaxed;
use std::thread::{Scope, ScopedJoinHandle};

use fastrand::Rng;

use super::rest;
use crate::shared::{SHORT_LIVED, Shared};
use crate::worker::{self, WorkerSpec, spawn};

const STEPS_MAX: u64 = 200;
const REST_MICROS_MAX: u64 = 2000;

/// Starts short-lived threads in the slots from `first_slot` until the run is over.
pub(crate) fn run<'scope>(
    scope: &'scope Scope<'scope, '_>,
    shared: &'scope Shared,
    first_slot: usize,
    seed: u64,
) {
    let mut random = Rng::with_seed(seed);
    let mut threads: [Option<ScopedJoinHandle<'scope, ()>>; SHORT_LIVED] = Default::default();
    for generation in 0.. {
        for (number, thread) in threads.iter_mut().enumerate() {
            // `worker::run` has already recorded a panic of the thread.
            thread.take().map(ScopedJoinHandle::join);
            if shared.is_over() {
                continue;
            }
            let steps = random.u64(1..STEPS_MAX);
            let spec = WorkerSpec {
                slot: first_slot + number,
                generation,
                steps,
                leaves_lanes_after: (random.u8(..4) == 0).then(|| random.u64(..steps)),
                has_timer: random.u8(..4) == 0,
            };
            // If the kernel grants no further thread, there is one less.
            *thread = spawn(scope, move || worker::run(shared, spec)).ok();
            shared.events.short_lived.fetch_add(u64::from(thread.is_some()), Relaxed);
        }
        if shared.is_over() {
            return;
        }
        rest(&mut random, REST_MICROS_MAX);
    }
}

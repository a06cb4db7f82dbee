//! A thread that takes one step after the other.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::Duration;

use thiscpu::__test_support;
use thiscpu_test_support::cpus;

use crate::handlers::{Target, Timer};
use crate::shared::Shared;
use crate::structures::Actor;
use crate::violation::{Finder, Violation};

/// What a worker does, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerSpec {
    pub(crate) slot: usize,
    /// The number of threads that had the slot before.
    pub(crate) generation: u64,
    /// The number of steps after which it ends, if the run does not end earlier.
    pub(crate) steps: u64,
    /// The number of steps after which it gives its lane up, for the rest of its life.
    pub(crate) leaves_lanes_after: Option<u64>,
    /// Whether a timer of its own interrupts it, besides the signals that all workers get.
    pub(crate) has_timer: bool,
}

/// The stack that a worker needs, with signal handlers on top of each other.
const STACK_BYTES: usize = 512 << 10;

/// Starts a thread of a run; fails if the kernel grants no further thread.
pub(crate) fn spawn<'scope>(
    threads: &'scope Scope<'scope, '_>,
    work: impl FnOnce() + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, ()>> {
    Builder::new().stack_size(STACK_BYTES).spawn_scoped(threads, work)
}

/// Runs a worker to its end. A panic is a failure of the run.
pub(crate) fn run(shared: &Shared, spec: WorkerSpec) {
    let result = catch_unwind(AssertUnwindSafe(|| {
        let _target = Target::enter(shared, spec.slot);
        let _timer = spec.has_timer.then(Timer::start);
        take_steps(shared, spec);
    }));
    if result.is_err() {
        shared.fail("worker", Finder::Worker(spec.slot), Violation::PANIC);
    }
}

fn take_steps(shared: &Shared, spec: WorkerSpec) {
    let own = &shared.slots[spec.slot];
    let mut actor = Actor::new(spec.slot, shared.seed(spec.slot, spec.generation));
    let mut cpu = cpus::current();
    for step in 0..spec.steps {
        if shared.is_over() {
            return;
        }
        if actor.has_lane && spec.leaves_lanes_after.is_some_and(|steps| steps <= step) {
            __test_support::leave_lanes();
            actor.has_lane = false;
        }
        shared.step(&mut actor);
        let now = cpus::current();
        own.migrations.fetch_add(u64::from(now != cpu), Relaxed);
        cpu = now;
        pause(shared, &mut actor);
    }
}

/// Spends the time between steps: mostly none.
fn pause(shared: &Shared, actor: &mut Actor) {
    match actor.random.u8(..) {
        0..4 if actor.has_lane => spin(shared, actor),
        4..8 => std::thread::yield_now(),
        8 => std::thread::sleep(Duration::from_micros(actor.random.u64(..200))),
        _ => {}
    }
}

/// Stays in a section for some microseconds and counts whether it is aborted.
///
/// The structures' own sections do not count their aborts; this is a sample of what happens to
/// them.
fn spin(shared: &Shared, actor: &mut Actor) {
    let own = &shared.slots[actor.slot];
    if let Ok(Some(aborted)) =
        __test_support::spin(actor.random.u64(100..10_000), &AtomicU64::new(0))
    {
        own.spins.fetch_add(1, Relaxed);
        own.aborts.fetch_add(u64::from(aborted), Relaxed);
    }
}

//! A thread that does one turn after the other.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use thiscpu::probe;

use crate::cpus;
use crate::disturb::signals::{Target, Timer};
use crate::structures::Actor;
use crate::world::World;
use crate::wrong::{Finder, Wrong};

/// A thread's life.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    pub(crate) slot: usize,
    /// How many threads were in the slot before.
    pub(crate) generation: u64,
    /// After how many turns it ends, if not when everything ends.
    pub(crate) turns: u64,
    /// After how many turns it gives its lane up, for the rest of its life.
    pub(crate) leaves_lanes_after: Option<u64>,
    /// Whether a timer strikes it, besides the signals that all get.
    pub(crate) has_timer: bool,
}

/// Lives it. A panic is a failure of the run.
pub(crate) fn live(world: &World, life: Life) {
    let lived = catch_unwind(AssertUnwindSafe(|| {
        let _target = Target::enter(world, life.slot);
        let _timer = life.has_timer.then(Timer::start);
        take_turns(world, life);
    }));
    if lived.is_err() {
        world.fail("worker", Finder::Worker(life.slot), PANIC);
    }
}

/// What is wrong when a thread panics, which has said why by then.
pub(crate) const PANIC: Wrong = Wrong { what: "panics", low: 0, high: 0, found: 1 };

fn take_turns(world: &World, life: Life) {
    let here = &world.slots[life.slot];
    let mut actor = Actor::new(life.slot, world.seed(life.slot, life.generation));
    let mut cpu = cpus::current();
    for turn in 0..life.turns {
        if world.is_over() {
            return;
        }
        if actor.has_lane && life.leaves_lanes_after.is_some_and(|turns| turns <= turn) {
            probe::leave_lanes();
            actor.has_lane = false;
        }
        world.turn(&mut actor);
        let now = cpus::current();
        here.migrations.fetch_add(u64::from(now != cpu), Relaxed);
        cpu = now;
        pause(world, &mut actor);
    }
}

/// What a thread does between turns: mostly nothing.
fn pause(world: &World, actor: &mut Actor) {
    match actor.random.u8(..) {
        0..4 if actor.has_lane => linger(world, actor),
        4..8 => std::thread::yield_now(),
        8 => std::thread::sleep(Duration::from_micros(actor.random.u64(..200))),
        _ => {}
    }
}

/// Stays in a section for some microseconds and sees whether it is aborted: a sample of what the
/// sections of the structures meet, which do not count their aborts.
fn linger(world: &World, actor: &mut Actor) {
    let here = &world.slots[actor.slot];
    if let Ok(Some(aborted)) = probe::linger(actor.random.u64(100..10_000), &AtomicU64::new(0)) {
        here.lingers.fetch_add(1, Relaxed);
        here.aborts.fetch_add(u64::from(aborted), Relaxed);
    }
}

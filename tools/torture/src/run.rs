//! Starts everybody, waits, and accounts.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{Builder, Scope, ScopedJoinHandle, scope};
use std::time::{Duration, Instant};

use crate::disturb::{affinity, churn, fork, signals};
use crate::plan::Plan;
use crate::progress::Progress;
use crate::report::{Faults, Report};
use crate::stop;
use crate::watchdog::{self, PATIENCE};
use crate::worker::{self, Life};
use crate::world::{SHORT_LIVED, World};

/// What a worker needs, signal handlers on top of each other included.
const STACK_BYTES: usize = 512 << 10;
/// How often it is looked whether the run is over.
const LOOK: Duration = Duration::from_millis(50);

/// Runs `plan`. If the run hangs, `on_hang` gets the report, and is to end the process: what hangs
/// cannot be ended otherwise.
///
/// # Errors
///
/// If the kernel grants no threads or no signals.
pub fn run(plan: &Plan, on_hang: &(dyn Fn(&Report) + Sync)) -> io::Result<Report> {
    signals::install()?;
    fork::quiet_children();
    stop::listen();
    let (started, faults) = (Instant::now(), Faults::so_far());
    let mut world = World::new(plan);
    let report = |world: &World| Report::new(plan, world, started.elapsed(), faults);
    let watch = |done: &AtomicBool| {
        watchdog::watch(&world, done, PATIENCE, || on_hang(&report(&world)));
    };
    watched(watch, || torment(plan, &world, started))?;
    // Whatever was left locked shows now.
    let hung = report(&world).hung_at_the_end();
    let watch = |done: &AtomicBool| watchdog::wait(done, PATIENCE, || on_hang(&hung));
    watched(watch, || world.account());
    Ok(report(&world))
}

/// Runs `work` while another thread runs `watch`, which is told when it is done.
fn watched<R>(watch: impl FnOnce(&AtomicBool) + Send, work: impl FnOnce() -> R) -> R {
    let done = &AtomicBool::new(false);
    scope(|threads| {
        let watcher = threads.spawn(move || watch(done));
        let result = work();
        done.store(true, SeqCst);
        watcher.thread().unpark();
        result
    })
}

/// Has everything happen at once until the time is over, something is wrong, or somebody asks for
/// an end.
fn torment(plan: &Plan, world: &World, started: Instant) -> io::Result<()> {
    scope(|threads| {
        let result = start_all(threads, plan, world);
        let progress = Progress::new(plan.duration);
        while result.is_ok() && !world.is_over() && !stop::is_asked() {
            let left = plan.duration.saturating_sub(started.elapsed());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(LOOK.min(left));
            progress.show(started.elapsed(), world);
        }
        world.end();
        result
    })
}

fn start_all<'scope>(
    threads: &'scope Scope<'scope, '_>,
    plan: &Plan,
    world: &'scope World,
) -> io::Result<()> {
    for slot in 0..plan.threads {
        spawn(threads, move || worker::live(world, life(slot)))?;
    }
    let (churned, forker) = (plan.threads, plan.threads + SHORT_LIVED);
    let seed = |disturbance| world.seed(forker + 1, disturbance);
    let seeds = [seed(0), seed(1), seed(2), seed(3)];
    spawn(threads, move || signals::run(world, seeds[0]))?;
    spawn(threads, move || affinity::run(world, seeds[1]))?;
    spawn(threads, move || churn::run(threads, world, churned, seeds[2]))?;
    spawn(threads, move || fork::run(world, forker, seeds[3]))?;
    Ok(())
}

/// A worker that stays. Some have no lane, some give theirs up later, some are struck by a timer.
fn life(slot: usize) -> Life {
    let leaves_lanes_after = match slot % 8 {
        5 => Some(0),
        7 => Some(1000),
        _ => None,
    };
    Life { slot, generation: 0, turns: u64::MAX, leaves_lanes_after, has_timer: slot % 4 == 1 }
}

/// Starts a thread, unless threads are scarce.
pub(crate) fn spawn<'scope>(
    threads: &'scope Scope<'scope, '_>,
    work: impl FnOnce() + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, ()>> {
    Builder::new().stack_size(STACK_BYTES).spawn_scoped(threads, work)
}

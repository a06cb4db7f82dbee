//! A run: start all threads, wait, verify.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{Scope, scope};
use std::time::{Duration, Instant};

use indicatif::HumanCount;
use thiscpu_test_support::tool::{progress, stop};

use crate::disturbances::{affinity, churn, fork, signals};
use crate::handlers;
use crate::plan::Plan;
use crate::report::{Faults, Report};
use crate::shared::{SHORT_LIVED, Shared};
use crate::watchdog::{self, PATIENCE};
use crate::worker::{self, WorkerSpec, spawn};

/// The time between checks whether the run is over.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Runs `plan`.
///
/// If the run hangs, `on_hang` gets the report and must end the process: a thread that hangs cannot
/// be ended otherwise.
///
/// Fails if the kernel grants no threads or no signals.
pub(crate) fn run(plan: &Plan, on_hang: &(dyn Fn(&Report) + Sync)) -> io::Result<Report> {
    handlers::install()?;
    fork::silence_children();
    stop::listen();
    let (started, faults) = (Instant::now(), Faults::so_far());
    let mut shared = Shared::new(plan);
    let report = |shared: &Shared| Report::new(plan, shared, started.elapsed(), faults);
    let watch = |done: &AtomicBool| {
        watchdog::watch(
            || shared.progress(),
            done,
            PATIENCE,
            || {
                watchdog::record_hang(&shared);
                on_hang(&report(&shared));
            },
        );
    };
    watched(watch, || run_all(plan, &shared, started))?;
    // A lock that was never released shows now.
    let hung = report(&shared).with_hung_final_check();
    let watch = |done: &AtomicBool| watchdog::watch(|| 0, done, PATIENCE, || on_hang(&hung));
    watched(watch, || shared.verify());
    Ok(report(&shared))
}

/// Runs `work` while another thread runs `watch`, whose argument says when the work is done.
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

/// Runs workers and disturbances until the time is over, a check fails, or the user stops it.
fn run_all(plan: &Plan, shared: &Shared, started: Instant) -> io::Result<()> {
    scope(|threads| {
        let result = start_all(threads, plan, shared);
        let bar = progress::bar(plan.duration.as_millis() as u64);
        while result.is_ok() && !shared.is_over() && !stop::is_requested() {
            let left = plan.duration.saturating_sub(started.elapsed());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(CHECK_INTERVAL.min(left));
            bar.set_position(started.elapsed().as_millis() as u64);
            bar.set_message(format!("{} operations", HumanCount(shared.progress())));
        }
        shared.end();
        result
    })
}

fn start_all<'scope>(
    threads: &'scope Scope<'scope, '_>,
    plan: &Plan,
    shared: &'scope Shared,
) -> io::Result<()> {
    for slot in 0..plan.threads {
        spawn(threads, move || worker::run(shared, spec_for(slot)))?;
    }
    let (churned, forker) = (plan.threads, plan.threads + SHORT_LIVED);
    let seed = |disturbance| shared.seed(forker + 1, disturbance);
    let seeds = [seed(0), seed(1), seed(2), seed(3)];
    spawn(threads, move || signals::run(shared, seeds[0]))?;
    spawn(threads, move || affinity::run(shared, seeds[1]))?;
    spawn(threads, move || churn::run(threads, shared, churned, seeds[2]))?;
    spawn(threads, move || fork::run(shared, forker, seeds[3]))?;
    Ok(())
}

/// Returns the specification of a worker that stays for the whole run.
///
/// Some have no lane, some give theirs up later, some are interrupted by a timer of their own.
fn spec_for(slot: usize) -> WorkerSpec {
    let leaves_lanes_after = match slot % 8 {
        5 => Some(0),
        7 => Some(1000),
        _ => None,
    };
    let has_timer = slot % 4 == 1;
    WorkerSpec { slot, generation: 0, steps: u64::MAX, leaves_lanes_after, has_timer }
}

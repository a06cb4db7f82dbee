//! A day in a server's life: acts that a malloc meets in a server, two at a time.
//!
//! The acts use `thiscpu_malloc`. Every block in use is recorded in memory that is not under test.
//! No block may overlap another one or change its content, and none may be lost.
//!
//! An act is a file in `acts/` and a line in its table. Acts know a [`Stage`], which has the heap
//! and starts threads and children.

mod acts;
mod content;
mod heap;
mod live;
mod plan;
mod report;
mod sizes;
mod stage;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::thread::scope;
use std::time::{Duration, Instant};

use fastrand::Rng;
use indicatif::HumanCount;
use thiscpu_test_support::SetOnDrop;
use thiscpu_test_support::tool::{progress, stop};

use self::acts::ACTS;
use self::heap::Heap;
pub(crate) use self::plan::Plan;
pub(crate) use self::report::Report;
use self::stage::Stage;
use crate::violation::{Checked, Failure, Failures, Finder, Violation};
use crate::watchdog::{self, PATIENCE};

/// The number of acts at a time.
const STAGES: usize = 2;
/// The longest time that an act takes.
const ACT_MAX: Duration = Duration::from_secs(5);
/// The value of a stage's `doing` between acts.
const NOTHING: usize = usize::MAX;
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// The time between sweeps over all blocks in use.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// What all threads of a run share.
struct Server {
    heap: Heap,
    failures: Failures,
    /// The act of each stage. SeqCst, for simplicity.
    doing: [AtomicUsize; STAGES],
    /// The number of times that each act was played. Relaxed: only the report shows it.
    played: [AtomicU64; ACTS.len()],
    /// The number of children. Relaxed: only the report shows it.
    children: AtomicU64,
    over: AtomicBool,
}

impl Server {
    fn new() -> Server {
        Server {
            heap: Heap::new(),
            failures: Failures::default(),
            doing: std::array::from_fn(|_| AtomicUsize::new(NOTHING)),
            played: Default::default(),
            children: AtomicU64::new(0),
            over: AtomicBool::new(false),
        }
    }

    fn is_over(&self) -> bool {
        self.over.load(SeqCst)
    }

    /// Records a violation, which ends the run.
    fn record(&self, act: &'static str, finder: Finder, result: Checked) {
        if let Err(violation) = result {
            self.failures.add(Failure { structure: act, finder, violation });
            self.over.store(true, SeqCst);
        }
    }

    /// Records the acts that hang.
    fn record_hang(&self) {
        for (stage, doing) in self.doing.iter().enumerate() {
            if let Some(act) = ACTS.get(doing.load(SeqCst)) {
                self.record(act.name, Finder::Watchdog(stage), Err(Violation::HANG));
            }
        }
    }
}

/// Plays acts for as long as `plan` says, and checks that nothing was lost.
///
/// If the run hangs, `on_hang` gets the report and must end the process.
pub(crate) fn run(plan: &Plan, on_hang: &(dyn Fn(&Report) + Sync)) -> Report {
    stop::listen();
    let (server, began) = (&Server::new(), Instant::now());
    let report = || Report::new(plan, server, began.elapsed());
    let done = &AtomicBool::new(false);
    scope(|threads| {
        let watcher = threads.spawn(|| {
            watchdog::watch(
                || server.heap.calls(),
                done,
                PATIENCE,
                || {
                    server.record_hang();
                    on_hang(&report());
                },
            );
        });
        play_all(plan, server, began);
        let result = match server.failures.all().is_empty() {
            true => server.heap.check_nothing_lost(),
            // A run that fails ends at once, so blocks are left.
            false => Ok(()),
        };
        server.record("heap", Finder::FinalCheck, result);
        done.store(true, SeqCst);
        watcher.thread().unpark();
    });
    report()
}

/// Plays acts on all stages, and sweeps, until the time is over, a check fails or a stop.
fn play_all(plan: &Plan, server: &Server, began: Instant) {
    scope(|threads| {
        // Stages end even if this thread panics.
        let _over = SetOnDrop(&server.over);
        for stage in 0..STAGES {
            threads.spawn(move || play(plan, server, stage));
        }
        let bar = progress::bar(plan.duration.as_millis() as u64);
        let mut swept = began;
        while !server.is_over() && !stop::is_requested() {
            let left = plan.duration.saturating_sub(began.elapsed());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(CHECK_INTERVAL.min(left));
            if swept.elapsed() >= SWEEP_INTERVAL {
                server.record("heap", Finder::Sweep, server.heap.live.sweep());
                swept = Instant::now();
            }
            bar.set_position(began.elapsed().as_millis() as u64);
            bar.set_message(format!("{} calls", HumanCount(server.heap.calls())));
        }
    });
}

/// Plays all acts in a random order, again and again, until the run is over.
fn play(plan: &Plan, server: &Server, number: usize) {
    let mut random = plan.random(number);
    let length = (plan.duration / ACTS.len() as u32).min(ACT_MAX);
    let mut order: [usize; ACTS.len()] = std::array::from_fn(|act| act);
    loop {
        random.shuffle(&mut order);
        for act in order {
            if server.is_over() {
                return;
            }
            server.doing[number].store(act, SeqCst);
            let stage = Stage::new(server, Instant::now() + length);
            let mut random = Rng::with_seed(random.u64(..));
            let play = AssertUnwindSafe(|| (ACTS[act].run)(&stage, &mut random));
            let result = catch_unwind(play).unwrap_or(Err(Violation::PANIC));
            server.record(ACTS[act].name, Finder::Worker(number), result);
            server.played[act].fetch_add(1, Relaxed);
            server.doing[number].store(NOTHING, SeqCst);
        }
    }
}

//! A limit under load: how many units were ever held at once, and whether units get stuck.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Result, ensure};
use thiscpu::Budget;

use super::screen::Screen;
use super::{Row, Scene, crew, grouped};

pub(super) const SCENE: Scene = Scene {
    title: "Limits: never exceeded, never stuck",
    page: "docs/design/budget.md",
    workload: "budget",
    run,
};

const LIMIT: u64 = 1_000;

/// What a thread takes at most. All threads together want more than there is.
const TAKEN_MAX: u64 = 400;

/// The usual way: look, then add.
#[derive(Default)]
struct CheckThenAdd {
    used: AtomicU64,
    peak: AtomicU64,
}

impl CheckThenAdd {
    fn try_acquire(&self, n: u64) -> bool {
        // Relaxed: it counts, and orders nothing else.
        if self.used.load(Relaxed) + n > LIMIT {
            return false;
        }
        let used = self.used.fetch_add(n, Relaxed) + n;
        self.peak.fetch_max(used, Relaxed);
        true
    }

    fn release(&self, n: u64) {
        self.used.fetch_sub(n, Relaxed);
    }
}

/// Counts the units that are held, independently of the budget.
struct Audit {
    held: AtomicU64,
    peak: AtomicU64,
}

impl Audit {
    fn new() -> Audit {
        Audit { held: AtomicU64::new(0), peak: AtomicU64::new(0) }
    }

    fn acquired(&self, n: u64) {
        let held = self.held.fetch_add(n, Relaxed) + n;
        self.peak.fetch_max(held, Relaxed);
    }

    fn releases(&self, n: u64) {
        self.held.fetch_sub(n, Relaxed);
    }
}

/// Sizes that a thread asks for, one after the other.
fn sizes(thread: usize) -> impl FnMut() -> u64 {
    let mut random = crew::random(thread);
    move || random() % TAKEN_MAX + 1
}

fn run(length: Duration, screen: &Screen) -> Result<Vec<Row>> {
    let (budget, audit) = (Budget::new(LIMIT), Audit::new());
    let prepare = |thread: usize| {
        let (budget, audit, mut size) = (&budget, &audit, sizes(thread));
        move || {
            let n = size();
            if budget.try_acquire(n).is_ok() {
                audit.acquired(n);
                std::hint::spin_loop();
                audit.releases(n);
                budget.release(n);
            }
        }
    };
    let show = || format!("thiscpu: {} held", grouped(audit.peak.load(Relaxed)));
    crew::run(prepare, || screen.watch(length / 2, show));
    let peak = audit.peak.load(Relaxed);
    ensure!(peak <= LIMIT, "a limit of {LIMIT} was exceeded: {peak}; please report this");
    // Every unit is free by now, but most of them are credit of some lane.
    let last = budget.try_acquire(LIMIT).is_ok();
    ensure!(last, "a limit of {LIMIT} refused its last unit wrongly; please report this");

    let naive = CheckThenAdd::default();
    let prepare = |thread: usize| {
        let (naive, mut size) = (&naive, sizes(thread));
        move || {
            let n = size();
            if naive.try_acquire(n) {
                std::hint::spin_loop();
                naive.release(n);
            }
        }
    };
    let show = || format!("check, then add: {} held", grouped(naive.peak.load(Relaxed)));
    crew::run(prepare, || screen.watch(length / 2, show));
    Ok(vec![Row {
        what: "most units held, of a limit of 1,000",
        thiscpu: format!("{}, none stuck", grouped(peak)),
        usual: grouped(naive.peak.load(Relaxed)),
        usual_is: "check, then add",
    }])
}

//! A limit under load: how many units were ever held at once, and whether units get stuck.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Result, ensure};
use indicatif::HumanCount;
use thiscpu::Budget;

use super::{Row, Scene, crew};

pub(super) const SCENE: Scene = Scene {
    title: "Limits: never exceeded, never stuck",
    page: "docs/design/budget.md",
    workload: "budget",
    run,
};

const LIMIT: u64 = 1_000;

/// What a thread takes at most. All threads together want more than there is.
const TAKEN_MAX: u64 = 400;

/// The units that are held, and the most that were.
///
/// Relaxed: they count, and order nothing else.
#[derive(Default)]
struct Held {
    now: AtomicU64,
    peak: AtomicU64,
}

impl Held {
    fn acquired(&self, n: u64) {
        let held = self.now.fetch_add(n, Relaxed) + n;
        self.peak.fetch_max(held, Relaxed);
    }

    fn releases(&self, n: u64) {
        self.now.fetch_sub(n, Relaxed);
    }

    fn peak(&self) -> HumanCount {
        HumanCount(self.peak.load(Relaxed))
    }
}

/// Sizes that a thread asks for, one after the other.
fn sizes(thread: usize) -> impl FnMut() -> u64 {
    let mut random = crew::random(thread);
    move || random() % TAKEN_MAX + 1
}

fn run(length: Duration) -> Result<Vec<Row>> {
    // The audit is independent of the budget.
    let (budget, audit) = (Budget::new(LIMIT), Held::default());
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
    let show = || format!("thiscpu: {} held", audit.peak());
    crew::run(length / 2, prepare, show);
    let peak = audit.peak.load(Relaxed);
    ensure!(peak <= LIMIT, "a limit of {LIMIT} was exceeded: {peak}; please report this");
    // Every unit is free by now, but most of them are credit of some lane.
    let last = budget.try_acquire(LIMIT).is_ok();
    ensure!(last, "a limit of {LIMIT} refused its last unit wrongly; please report this");

    // The usual way: look, then add.
    let naive = Held::default();
    let prepare = |thread: usize| {
        let (naive, mut size) = (&naive, sizes(thread));
        move || {
            let n = size();
            if naive.now.load(Relaxed) + n <= LIMIT {
                naive.acquired(n);
                std::hint::spin_loop();
                naive.releases(n);
            }
        }
    };
    let show = || format!("check, then add: {} held", naive.peak());
    crew::run(length / 2, prepare, show);
    Ok(vec![Row {
        what: "most units held, of a limit of 1,000",
        usual_is: "check, then add",
        thiscpu: format!("{}, none stuck", audit.peak()),
        usual: naive.peak().to_string(),
    }])
}

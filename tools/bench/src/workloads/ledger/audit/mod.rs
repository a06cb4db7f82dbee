//! `ledger audit`: accounts for every unit of many charges. Nothing is timed.
//!
//! Meanwhile accounts open and close, units are transferred, sums and snapshots are taken, and the
//! process forks. `worker` has the operations of threads, `fork` the checks of forked children.

mod fork;
mod shared;
mod tenant;
mod worker;

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::ensure;
use thiscpu_test_support::tool::stop;

use self::{fork::Forks, shared::Shared, worker::Worker};
use super::{Measured, Setting};
use crate::{
    metric::{
        AUDITED, CLOSED, DOUBLED_UNITS, FORKS, HIT_RATE, LOST_UNITS, OPENED, SNAPSHOTS, SUMS,
        TRANSFERS,
    },
    slice,
};

/// The least number of forks, however few charges are requested.
const FORKS_MIN: u64 = 5;
/// The snapshots between two forks, and the pause after each.
const SNAPSHOTS_PER_FORK: u64 = 4;
const PAUSE: Duration = Duration::from_millis(5);

/// Audits charges, at least as many as requested.
pub(crate) fn audit(setting: &Setting<'_>) -> Measured {
    let mut shared = Shared::new(setting.threads);
    let mut forks = Forks::new(setting.round);
    let prepare = |index| {
        let mut worker = Worker::new(&shared, setting, index);
        move || worker.step()
    };
    let conduct = || {
        let began = Instant::now();
        loop {
            forks.fork(&shared)?;
            let is_enough = shared.counts.charges.get() >= setting.audited_min
                && forks.children >= FORKS_MIN
                && began.elapsed() >= setting.length;
            // After an error, more charges would tell nothing new.
            if is_enough || stop::is_requested() || forks.wrong > 0 || shared.errors.any() {
                return Ok(());
            }
            for _ in 0..SNAPSHOTS_PER_FORK {
                shared.check_snapshot(&shared.errors);
                thread::sleep(PAUSE);
            }
            shared.counts.snapshots.add(SNAPSHOTS_PER_FORK);
            let charges = shared.counts.charges.get();
            setting.progress.audited(charges, setting.audited_min, began.elapsed());
        }
    };
    slice::run(setting.cpus, setting.threads, 1, prepare, conduct)?;
    shared.settle();
    readings(&shared, &forks)
}

fn readings(shared: &Shared, forks: &Forks) -> Measured {
    let (counts, lost, doubled) = (&shared.counts, shared.errors.lost(), shared.errors.doubled());
    let charges = counts.charges.get();
    ensure!(
        lost == 0 && doubled == 0 && forks.wrong == 0,
        "{lost} units lost and {doubled} counted twice in {charges} charges; {} of {} forked \
         children found errors or failed",
        forks.wrong,
        forks.children
    );
    let count = |count: u64| count as f64;
    let mut readings = vec![
        LOST_UNITS.reads(count(lost)),
        DOUBLED_UNITS.reads(count(doubled)),
        AUDITED.reads(count(charges)),
        OPENED.reads(count(counts.opened.get())),
        CLOSED.reads(count(counts.closed.get())),
        TRANSFERS.reads(count(counts.transfers.get())),
        SUMS.reads(count(counts.sums.get())),
        SNAPSHOTS.reads(count(counts.snapshots.get())),
        FORKS.reads(count(forks.children)),
    ];
    readings.extend(shared.hit_rate().map(|rate| HIT_RATE.reads(rate)));
    Ok(readings)
}

//! `ledger`, case `snapshot-all`: how a snapshot of all accounts delays charges.
//!
//! One thread charges a million accounts, as in case `zipf`, and measures the time of each charge:
//! first alone, then while another thread takes one snapshot after another. That thread has its own
//! CPU if there are two. Only this library takes part, because no other contender can read all
//! accounts at one instant.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    time::Instant,
};

use anyhow::{Context as _, Result, ensure};
use thiscpu::Ledger;

use super::{Measured, Setting, zipf::Stream};
use crate::{
    contenders::ledgers::COUNTERS,
    metric::{CHARGE_P9999, CHARGE_P9999_ALONE, LONGEST_CHARGE, TIME_PER_SNAPSHOT},
    slice, stats,
};

/// The number of charging threads. One more thread takes snapshots.
pub(crate) const THREADS: usize = 1;

/// Charges between two checks of the stop flag.
const STEP: u32 = 64;

/// The least number of snapshots, however short the slice.
const REPORTS_MIN: usize = 3;

/// Measures the time of snapshots, and of charges meanwhile.
pub(crate) fn measure(setting: &Setting<'_>) -> Measured {
    let stream = Stream::get(setting.is_trial);
    let ledger: Ledger<COUNTERS> = Ledger::new();
    let accounts: Vec<_> = (0..stream.owners).map(|_| ledger.open()).collect();
    let (alone, amid) = (Times::new(), Times::new());
    let is_reporting = AtomicBool::new(false);
    let prepare = |_| {
        let (alone, amid, is_reporting) = (&alone, &amid, &is_reporting);
        let (requests, accounts) = (&*stream.requests, &*accounts);
        let mut next = 0;
        move || {
            let times = if is_reporting.load(Relaxed) { amid } else { alone };
            let before = Instant::now();
            accounts[requests[next] as usize].charge(0, 1);
            times.add(before.elapsed().as_nanos() as usize);
            next = if next + 1 == requests.len() { 0 } else { next + 1 };
            Ok(())
        }
    };
    let conduct = || {
        let reporting = || {
            slice::sleep(setting.length)?;
            is_reporting.store(true, Relaxed);
            let time = reports(&ledger, setting);
            is_reporting.store(false, Relaxed);
            time
        };
        setting.cpus.confined(1..2, reporting).context("cannot confine the snapshot thread")?
    };
    let slice = slice::run(setting.cpus, THREADS, STEP, prepare, conduct)?;
    let charges = slice.ops + slice.warmup_ops;
    let charged: i64 = accounts.iter().map(|account| account.sum(0)).sum();
    ensure!(charged == charges as i64, "threads charged {charges}, but accounts have {charged}");
    Ok(vec![
        TIME_PER_SNAPSHOT.reads(slice.outcome),
        CHARGE_P9999_ALONE.reads(alone.quantile(0.9999)),
        CHARGE_P9999.reads(amid.quantile(0.9999)),
        LONGEST_CHARGE.reads(amid.quantile(1.0)),
    ])
}

/// Takes snapshots and returns their median time in nanoseconds.
fn reports(ledger: &Ledger<COUNTERS>, setting: &Setting<'_>) -> Result<f64> {
    let began = Instant::now();
    let mut times = Vec::new();
    while times.len() < REPORTS_MIN || began.elapsed() < setting.length {
        slice::check_stop()?;
        let before = Instant::now();
        let mut units = 0;
        ledger.for_each(|_, counters| units += counters[0]);
        std::hint::black_box(units);
        times.push(before.elapsed().as_nanos() as f64);
    }
    Ok(stats::median(&times).unwrap_or_default())
}

/// A histogram of charge times: a count for each 64 ns, up to a quarter of a second.
///
/// Only one thread writes to it.
struct Times(Box<[AtomicU32]>);

/// The width of a count's interval in nanoseconds.
const GRAIN: usize = 64;

impl Times {
    fn new() -> Self {
        Self((0..1 << 22).map(|_| AtomicU32::new(0)).collect())
    }

    fn add(&self, nanoseconds: usize) {
        let place = &self.0[(nanoseconds / GRAIN).min(self.0.len() - 1)];
        // Relaxed, and no read-modify-write: there is one writer, joined before anything reads.
        place.store(place.load(Relaxed) + 1, Relaxed);
    }

    /// Returns the time, in nanoseconds, that the share `part` of charges did not exceed.
    fn quantile(&self, part: f64) -> f64 {
        let counts = || self.0.iter().map(|count| f64::from(count.load(Relaxed)));
        let wanted = counts().sum::<f64>() * part;
        let mut so_far = 0.0;
        let is_before = |count: &f64| {
            so_far += count;
            so_far < wanted
        };
        (counts().take_while(is_before).count() * GRAIN) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_quantile_rounds_down_and_saturates() {
        let times = Times::new();
        (0..9_999).for_each(|_| times.add(70));
        times.add(1_000_000);
        assert_eq!((times.quantile(0.5), times.quantile(0.9999)), (64.0, 64.0));
        assert_eq!(times.quantile(1.0), 1_000_000.0);
        times.add(usize::MAX);
        assert!(times.quantile(1.0) >= 250_000_000.0);
    }
}

//! `ledger snapshot-all`: how much snapshots of all accounts delay charges.
//!
//! One thread charges a million accounts, as in `zipf`, and takes the time of each charge: first
//! alone, and then while another thread takes one snapshot after another, on a CPU of its own if
//! there is one. Only this library takes share: no other contender has the values of all accounts
//! at one instant.

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

/// The thread that charges; the other one takes snapshots.
pub(crate) const THREADS: usize = 1;

/// The number of charges between two checks of the stop flag.
const STEP: u32 = 64;

/// The least number of snapshots, however short the slices are.
const SNAPSHOTS_MIN: usize = 3;

/// Measures the time of snapshots, and of charges during them.
pub(crate) fn measure(setting: &Setting<'_>) -> Measured {
    let stream = Stream::get(setting.is_trial);
    let ledger: Ledger<COUNTERS> = Ledger::new();
    let accounts: Vec<_> = (0..stream.owners).map(|_| ledger.open()).collect();
    let (alone, during) = (Times::new(), Times::new());
    let is_taking = AtomicBool::new(false);
    let prepare = |_| {
        let (alone, during, is_taking) = (&alone, &during, &is_taking);
        let (requests, accounts) = (&*stream.requests, &*accounts);
        let mut next = 0;
        move || {
            let times = if is_taking.load(Relaxed) { during } else { alone };
            let before = Instant::now();
            accounts[requests[next] as usize].charge(0, 1);
            times.add(before.elapsed().as_nanos() as usize);
            next = if next + 1 == requests.len() { 0 } else { next + 1 };
            Ok(())
        }
    };
    let conduct = || {
        let taking = || {
            slice::sleep(setting.length)?;
            is_taking.store(true, Relaxed);
            let time = snapshots(&ledger, setting);
            is_taking.store(false, Relaxed);
            time
        };
        setting
            .cpus
            .confined(1..2, taking)
            .context("cannot confine the thread that takes snapshots")?
    };
    let slice = slice::run(setting.cpus, THREADS, STEP, prepare, conduct)?;
    let charges = slice.ops + slice.warmup_ops;
    let charged: i64 = accounts.iter().map(|account| account.sum(0)).sum();
    ensure!(charged == charges as i64, "{charges} was charged, but accounts have {charged}");
    Ok(vec![
        TIME_PER_SNAPSHOT.reads(slice.outcome),
        CHARGE_P9999_ALONE.reads(alone.quantile(0.9999)),
        CHARGE_P9999.reads(during.quantile(0.9999)),
        LONGEST_CHARGE.reads(during.quantile(1.0)),
    ])
}

/// Takes snapshots for a slice, and returns their median time in nanoseconds.
fn snapshots(ledger: &Ledger<COUNTERS>, setting: &Setting<'_>) -> Result<f64> {
    let began = Instant::now();
    let mut times = Vec::new();
    while times.len() < SNAPSHOTS_MIN || began.elapsed() < setting.length {
        slice::check_stop()?;
        let before = Instant::now();
        let mut units = 0;
        ledger.for_each(|_, counters| units += counters[0]);
        std::hint::black_box(units);
        times.push(before.elapsed().as_nanos() as f64);
    }
    Ok(stats::median(&times).unwrap_or_default())
}

/// The number of charges by their time: a bucket for each 64 ns, up to a quarter of a second.
///
/// Only one thread writes to it.
struct Times(Box<[AtomicU32]>);

const BUCKET_NS: usize = 64;

impl Times {
    fn new() -> Self {
        Self((0..1 << 22).map(|_| AtomicU32::new(0)).collect())
    }

    fn add(&self, nanoseconds: usize) {
        let bucket = &self.0[(nanoseconds / BUCKET_NS).min(self.0.len() - 1)];
        // Relaxed, and not one operation: no other thread writes, and the only writer has been
        // joined before the buckets are read.
        bucket.store(bucket.load(Relaxed) + 1, Relaxed);
    }

    /// Returns the time that a share of the charges did not exceed.
    fn quantile(&self, share: f64) -> f64 {
        let counts = || self.0.iter().map(|count| f64::from(count.load(Relaxed)));
        let wanted = counts().sum::<f64>() * share;
        let mut so_far = 0.0;
        let is_before = |count: &f64| {
            so_far += count;
            so_far < wanted
        };
        (counts().take_while(is_before).count() * BUCKET_NS) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_times() {
        let times = Times::new();
        (0..9_999).for_each(|_| times.add(70));
        times.add(1_000_000);
        assert_eq!((times.quantile(0.5), times.quantile(0.9999)), (64.0, 64.0));
        assert_eq!(times.quantile(1.0), 1_000_000.0);
        times.add(usize::MAX);
        assert!(times.quantile(1.0) >= 250_000_000.0);
    }
}

//! `ledger snapshot-all`: how much snapshots of all accounts delay charges.
//!
//! One thread charges a million accounts, as in `zipf`, and takes the time of each charge: first
//! alone, and then while another thread takes one snapshot after another, on a CPU of its own if
//! there is one. Only this library takes part: no other contender has the values of all accounts
//! at one instant.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Instant,
};

use anyhow::ensure;
use hdrhistogram::Histogram;
use thiscpu::Ledger;
use thiscpu_test_support::tool::stop;

use super::{Measured, Setting, zipf::Stream};
use crate::{
    contenders::ledgers::COUNTERS,
    metric::{CHARGE_P9999, CHARGE_P9999_ALONE, LONGEST_CHARGE, TIME_PER_SNAPSHOT},
    slice, stats,
};

/// The thread that charges; the other one takes snapshots.
pub(crate) const THREADS: usize = 1;

const SIGNIFICANT_DIGITS: u8 = 3;

/// The least number of snapshots, however short the slices are.
const SNAPSHOTS_MIN: usize = 3;

/// Measures the time of snapshots, and of charges during them.
pub(crate) fn measure(setting: &Setting<'_>) -> Measured {
    let stream = Stream::get(setting.is_trial);
    let ledger: Ledger<COUNTERS> = Ledger::new();
    let accounts: Vec<_> = (0..stream.owners).map(|_| ledger.open()).collect();
    let times = || Histogram::<u64>::new(SIGNIFICANT_DIGITS);
    // The times of charges alone, and of those during snapshots. The only thread keeps the lock.
    let times = Mutex::new([times()?, times()?]);
    let is_taking = AtomicBool::new(false);
    let prepare = |_| {
        let mut times = times.lock().unwrap_or_else(PoisonError::into_inner);
        let (is_taking, requests, accounts) = (&is_taking, &*stream.requests, &*accounts);
        let mut next = 0;
        move || {
            // Relaxed: pairs with the stores in `taking`; a late change does no harm.
            let times = &mut times[usize::from(is_taking.load(Relaxed))];
            let before = Instant::now();
            accounts[requests[next] as usize].charge(0, 1);
            times.record(before.elapsed().as_nanos() as u64)?;
            next = if next + 1 == requests.len() { 0 } else { next + 1 };
            Ok(())
        }
    };
    let conduct = || {
        let taking = || {
            stop::sleep(setting.length);
            is_taking.store(true, Relaxed);
            let time = snapshots(&ledger, setting);
            is_taking.store(false, Relaxed);
            Ok(time)
        };
        setting.cpus.confined(1..2, taking)
    };
    let slice = slice::run(setting.cpus, THREADS, 64, prepare, conduct)?;
    let charges = slice.all_ops;
    let charged: i64 = accounts.iter().map(|account| account.sum(0)).sum();
    ensure!(charged == charges as i64, "{charges} was charged, but accounts have {charged}");
    slice::check_stop()?;
    let [alone, during] = times.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(vec![
        TIME_PER_SNAPSHOT.reads(slice.outcome),
        CHARGE_P9999_ALONE.reads(alone.value_at_quantile(0.9999) as f64),
        CHARGE_P9999.reads(during.value_at_quantile(0.9999) as f64),
        LONGEST_CHARGE.reads(during.max() as f64),
    ])
}

/// Takes snapshots for a slice, and returns their median time in nanoseconds.
fn snapshots(ledger: &Ledger<COUNTERS>, setting: &Setting<'_>) -> f64 {
    let began = Instant::now();
    let mut times = Vec::new();
    let is_short = |taken: usize| taken < SNAPSHOTS_MIN || began.elapsed() < setting.length;
    while is_short(times.len()) && !stop::is_requested() {
        let before = Instant::now();
        let mut units = 0;
        ledger.for_each(|_, counters| units += counters[0]);
        std::hint::black_box(units);
        times.push(before.elapsed().as_nanos() as f64);
    }
    stats::median(&times).unwrap_or_default()
}

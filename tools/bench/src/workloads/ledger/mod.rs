//! `ledger`: threads that charge the accounts of many owners, one unit at a time.
//!
//! | case | next account |
//! |---|---|
//! | `single` | always the one account of all threads |
//! | `working-set-N` | the next of N accounts, round robin; all threads use all of them |
//! | `zipf` | drawn from 1,000,000 by a Zipf distribution (exponent 0.99), before the slice |
//!
//! The cases `audit` and `snapshot-all` have modules of their own.

use anyhow::ensure;

pub(crate) mod audit;
pub(crate) mod snapshot_all;
mod zipf;

use self::zipf::Stream;
use super::{Measured, Setting};
use crate::{
    contenders::{Padded, ledgers::Contender},
    metric::{HIT_RATE, TIME_PER_OP},
    slice::{self, Slice},
};

/// Charges between two checks of the stop flag.
const STEP: u32 = 256;

/// The index of the counter that is charged.
const PAGES: usize = 0;

/// Measures the time of a charge to `LIVE` accounts in turn.
pub(crate) fn live<C: Contender, const LIVE: usize>(setting: &Setting<'_>) -> Measured {
    let ledger = Padded::new(C::new(2 * LIVE));
    // Every other account is unused, so that no two used accounts share a cache line. In a program,
    // an owner's counters are part of something larger.
    let accounts: Vec<C::Account> = (0..2 * LIVE).map(|_| ledger.open()).collect();
    let prepare = |index: usize| {
        let mut next = LIVE * index / setting.threads;
        let (ledger, accounts) = (&*ledger, &*accounts);
        move || {
            ledger.charge(&accounts[2 * next], PAGES, 1);
            next = if next + 1 == LIVE { 0 } else { next + 1 };
            Ok(())
        }
    };
    let conduct = slice::lasting(setting.length);
    let slice = slice::run(setting.cpus, setting.threads, STEP, prepare, conduct)?;
    readings(setting, &*ledger, &accounts, &slice)
}

/// Measures the time of a charge to one of a million accounts.
///
/// Each thread begins at its own position in the stream, and wraps around at its end.
pub(crate) fn zipf<C: Contender>(setting: &Setting<'_>) -> Measured {
    let stream = Stream::get(setting.is_trial);
    let ledger = Padded::new(C::new(stream.owners));
    let accounts: Vec<C::Account> = (0..stream.owners).map(|_| ledger.open()).collect();
    let prepare = |index: usize| {
        let requests = &*stream.requests;
        let mut next = requests.len() * index / setting.threads;
        let (ledger, accounts) = (&*ledger, &*accounts);
        move || {
            ledger.charge(&accounts[requests[next] as usize], PAGES, 1);
            next = if next + 1 == requests.len() { 0 } else { next + 1 };
            Ok(())
        }
    };
    let conduct = slice::lasting(setting.length);
    let slice = slice::run(setting.cpus, setting.threads, STEP, prepare, conduct)?;
    readings(setting, &*ledger, &accounts, &slice)
}

/// Checks that all charges are in the accounts, and returns the slice's readings.
fn readings<C: Contender>(
    setting: &Setting<'_>,
    ledger: &C,
    accounts: &[C::Account],
    slice: &Slice<()>,
) -> Measured {
    ledger.sync();
    let charges = slice.ops + slice.warmup_ops;
    let charged: i64 = accounts.iter().map(|account| ledger.read(account, PAGES)).sum();
    ensure!(charged == charges as i64, "threads charged {charges}, but accounts have {charged}");
    let mut readings = vec![TIME_PER_OP.reads(slice.op_ns(setting.threads, setting.cpus)?)];
    let hits_percent = |misses: u64| 100.0 * (1.0 - misses as f64 / charges as f64);
    readings.extend(ledger.misses().map(|misses| HIT_RATE.reads(hits_percent(misses))));
    Ok(readings)
}

//! `ledger`: threads that charge the accounts of many owners, one unit at a time.
//!
//! | case | the next account |
//! |---|---|
//! | `single` | always the same one, for all threads |
//! | `working-set-8`, `-64`, `-512` | the next of that many, in turn; all threads share them |
//! | `zipf` | drawn before the slice from 1,000,000; a few are charged most (Zipf, 0.99) |
//!
//! The cases `audit` and `snapshot-all` have modules of their own.

pub(crate) mod audit;
pub(crate) mod snapshot_all;
mod zipf;

use anyhow::ensure;

use self::zipf::Stream;
use super::{Measured, Setting};
use crate::{
    contenders::{Padded, ledgers::Contender},
    metric::{HIT_RATE, TIME_PER_OP},
};

const PAGES: usize = 0;

/// Measures the time of a charge to one of `LIVE` owners in turn.
pub(crate) fn live<C: Contender, const LIVE: usize>(setting: &Setting<'_>) -> Measured {
    // Every other account is unused, so that no two used ones share a cache line: outside
    // benchmarks, an owner's counters are part of something larger.
    measure::<C>(setting, 2 * LIVE, LIVE, |next| 2 * next)
}

/// Measures the time of a charge to one of a million owners.
///
/// Each thread begins at its own part of the stream, and repeats it.
pub(crate) fn zipf<C: Contender>(setting: &Setting<'_>) -> Measured {
    let stream = Stream::get(setting.is_trial);
    let requests = &*stream.requests;
    measure::<C>(setting, stream.owners, requests.len(), |next| requests[next] as usize)
}

/// Measures charges to the account of each request in turn. Fails unless accounts have all.
#[inline(always)]
fn measure<C: Contender>(
    setting: &Setting<'_>,
    accounts: usize,
    requests: usize,
    account_of: impl Fn(usize) -> usize + Copy + Sync,
) -> Measured {
    let ledger = Padded::new(C::new(accounts));
    let accounts: Vec<C::Account> = (0..accounts).map(|_| ledger.open()).collect();
    let prepare = |index: usize| {
        let mut next = requests * index / setting.threads;
        let (ledger, accounts) = (&*ledger, &*accounts);
        move || {
            ledger.charge(&accounts[account_of(next)], PAGES, 1);
            next = if next + 1 == requests { 0 } else { next + 1 };
            Ok(())
        }
    };
    let slice = setting.slice(256, prepare)?;
    ledger.sync();
    let charges = slice.all_ops;
    let charged: i64 = accounts.iter().map(|account| ledger.read(account, PAGES)).sum();
    ensure!(charged == charges as i64, "{charges} was charged, but accounts have {charged}");
    let mut readings = vec![TIME_PER_OP.reads(slice.op_ns()?)];
    let hits_percent = |misses: u64| 100.0 * (1.0 - misses as f64 / charges as f64);
    readings.extend(ledger.misses().map(|misses| HIT_RATE.reads(hits_percent(misses))));
    Ok(readings)
}

//! `rate`: calls that a limit on units over time admits or refuses.
//!
//! | case | an operation | the limit |
//! |---|---|---|
//! | `far` | a call, which is admitted | 4 billion a second, with a burst of 2^30 |
//! | `refused` | a call, which is nearly always refused | 1,000 a second, with a burst of 1 |
//! | `worst-second` | not timed: the most calls within a second | 100 a second |
//! | `audit` | not timed: calls for 1 to 64 units | several, with refusals and without |
//!
//! The audit records each call with its times. Then an oracle looks for a span of time in which
//! more was taken than the rate allows, and for refusals that no instant of the call explains.

use std::{
    hint::black_box,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use anyhow::ensure;
use thiscpu::{Pace, Rate, RateWindow};
use thiscpu_test_support::{
    random::Random,
    rate_oracle::{Bucket, Call, Window},
    tool::stop,
};

use super::{Measured, Setting};
use crate::{
    contenders::{Padded, rates, rates::Contender},
    metric::{ADMITTED_IN_A_SECOND, AUDITED, OVER_GRANTS, REFUSED, TIME_PER_OP, WRONG_REFUSALS},
};

/// The number of operations between two checks of the stop flag.
const STEP: u32 = 64;

/// Measures a call far from the limit.
pub(crate) fn far<C: Contender>(setting: &Setting<'_>) -> Measured {
    let limit = Padded::new(C::new(4_000_000_000, 1 << 30));
    let prepare = |_| {
        || {
            ensure!(black_box(limit.try_acquire()), "refused far from the limit");
            Ok(())
        }
    };
    Ok(vec![TIME_PER_OP.reads(setting.slice(STEP, prepare)?.op_ns()?)])
}

/// Measures a call at the limit, which refuses nearly all.
pub(crate) fn refused<C: Contender>(setting: &Setting<'_>) -> Measured {
    let limit = Padded::new(C::new(1_000, 1));
    let prepare = |_| {
        || {
            black_box(limit.try_acquire());
            Ok(())
        }
    };
    Ok(vec![TIME_PER_OP.reads(setting.slice(STEP, prepare)?.op_ns()?)])
}

/// Counts the calls that are admitted in the worst second.
pub(crate) fn worst_second(setting: &Setting<'_>) -> Measured {
    let worst = rates::worst_second(setting.contender)?;
    Ok(vec![ADMITTED_IN_A_SECOND.reads(worst as f64)])
}

/// The calls of all threads between two checks. More would take more memory and time.
const CALLS: usize = 200_000;

/// A limit that is audited.
enum Limit {
    Rate { pace: (u64, u64), burst: u64, share: u64 },
    Window { limit: u64, period: u64 },
}

/// Limits that are far, near and reached; with lanes and without.
const LIMITS: [Limit; 6] = [
    Limit::Rate { pace: (200_000_000, 1_000_000_000), burst: 1 << 20, share: 1 << 17 },
    Limit::Rate { pace: (30_000_001, 1_000_000_000), burst: 20_000, share: 2_500 },
    Limit::Rate { pace: (1_000_000, 1_000_000_000), burst: 5_000, share: 625 },
    Limit::Rate { pace: (7, 300), burst: 1_000, share: 0 },
    Limit::Rate { pace: (1, 1_000), burst: 64, share: 8 },
    Limit::Window { limit: 5_000, period: 640_000 },
];

/// Audits calls until there are enough.
pub(crate) fn audit(setting: &Setting<'_>) -> Measured {
    let (mut audited, mut refused, mut excess, mut wrong) = (0_u64, 0, 0, 0);
    for (round, limit) in LIMITS.iter().cycle().enumerate() {
        let is_enough = round >= LIMITS.len() && audited >= setting.audited_min;
        if is_enough || stop::is_requested() {
            break;
        }
        let seed = (u64::from(setting.round) << 32) + round as u64;
        let calls = match *limit {
            Limit::Rate { pace, burst, share } => {
                let rate =
                    Rate::with_share(Pace::per(pace.0, Duration::from_nanos(pace.1)), burst, share);
                let calls = record(setting, seed, |units| rate.try_acquire(units).is_ok());
                excess += Bucket { pace, burst }.excess(&calls);
                let bucket = Bucket { pace, burst: burst - share };
                wrong += u64::from(bucket.wrong_refusal(&calls).is_some());
                calls
            }
            Limit::Window { limit, period } => {
                let window = RateWindow::new(limit, Duration::from_nanos(period));
                let calls = record(setting, seed, |units| window.try_acquire(units).is_ok());
                let oracle = Window { limit, period };
                excess += oracle.most(&calls).saturating_sub(limit);
                wrong += u64::from(oracle.wrong_refusal(&calls).is_some());
                calls
            }
        };
        audited += calls.len() as u64;
        refused += calls.iter().filter(|call| !call.is_admitted).count();
    }
    ensure!((excess, wrong) == (0, 0), "{excess} units too many, {wrong} runs with wrong refusals");
    Ok(vec![
        AUDITED.reads(audited as f64),
        OVER_GRANTS.reads(excess as f64),
        WRONG_REFUSALS.reads(wrong as f64),
        REFUSED.reads(100.0 * refused as f64 / audited.max(1) as f64),
    ])
}

/// Calls a limit at random on all threads, which move between CPUs, and returns the calls.
fn record(setting: &Setting<'_>, seed: u64, acquire: impl Fn(u64) -> bool + Sync) -> Vec<Call> {
    let each = CALLS / if setting.is_trial { 20 } else { 1 } / setting.threads;
    let (start, barrier) = (Instant::now(), &Barrier::new(setting.threads));
    let now = || start.elapsed().as_nanos() as u64;
    let work = |thread: usize| {
        let mut random = Random::new(seed * 64 + thread as u64 + 1);
        let mut calls = Vec::with_capacity(each);
        barrier.wait();
        for _ in 0..each {
            let units = 1 + if random.below(8) == 0 { random.below(64) } else { 0 };
            let began = now();
            let is_admitted = acquire(units);
            calls.push(Call { began, ended: now(), units, is_admitted });
            if random.below(500) == 0 {
                // Units come back meanwhile, so a rate changes its mode often.
                thread::sleep(Duration::from_micros(random.below(100)));
            }
        }
        calls
    };
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..setting.threads).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    })
}

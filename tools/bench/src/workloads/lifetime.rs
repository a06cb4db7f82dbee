//! `lifetime`: counters are made, used and dropped, alone and among a million others.
//!
//! An operation drops a counter and makes another, which it adds to until the counter takes memory
//! in the lanes. A slice with a thousand counters comes first: their memory is as fresh as it ever
//! is, and stays in the processor's cache. Then there are a million, of which each operation
//! replaces a random one. So after a while free memory is scattered over that of all counters.
//!
//! Before both, a million counters are made and used one after the other, and dropped, in memory
//! without pages: that is what a program's first million counters take. Only this library takes
//! part: no other contender gives the memory of a counter back.

use std::{
    sync::{Barrier, Mutex},
    time::Instant,
};

use anyhow::{Context as _, ensure};
use thiscpu::Counter;
use thiscpu_test_support::random::Random;

use super::{Measured, Setting};
use crate::metric::{
    FRESH_RATIO, LIFETIME_RATIO, TIME_PER_OP, TIME_PER_OP_ALONE, TIME_PER_OP_FRESH,
};

/// The counters in the first slice, and in the second one.
const ALONE: usize = 1_000;
const AMONG: usize = 1_000_000;

/// Enough adds for a new counter to take memory in the lanes.
const ADDS: i64 = 40;

/// The slices' worth of replacements that scatter free memory before the second slice.
const SCATTERED_PART: usize = 2;

/// Measures the time of a counter's life among a million others, and alone.
pub(crate) fn measure(setting: &Setting<'_>) -> Measured {
    let among = if setting.is_trial { AMONG / 100 } else { AMONG };
    let fresh = time_per_new_counter(setting, among)?;
    let alone = time_per_life(setting, ALONE)?;
    let among = time_per_life(setting, among)?;
    Ok(vec![
        TIME_PER_OP.reads(among),
        TIME_PER_OP_ALONE.reads(alone),
        LIFETIME_RATIO.reads(among / alone),
        TIME_PER_OP_FRESH.reads(fresh),
        FRESH_RATIO.reads(among / fresh),
    ])
}

/// Returns the time to make, use and drop one of `count` new counters, in nanoseconds.
///
/// Each thread makes and uses its share, waits for the others, and then drops it. So no thread uses
/// memory that another one has dropped. The memory has no pages: those of earlier counters have
/// returned to the system.
fn time_per_new_counter(setting: &Setting<'_>, count: usize) -> anyhow::Result<f64> {
    let share = count / setting.threads;
    let all_are_made = Barrier::new(setting.threads);
    let began = Instant::now();
    setting.cpus.on_each(setting.threads, |_| {
        let mut counters: Vec<Counter> = Vec::with_capacity(share);
        counters.extend((0..share).map(|_| used()));
        all_are_made.wait();
    })?;
    let busy = setting.threads.min(setting.cpus.len());
    let time = began.elapsed().as_nanos() as f64 * busy as f64;
    Ok(time / (share * setting.threads) as f64)
}

/// Returns the time to replace a random one of `count` counters, in nanoseconds.
fn time_per_life(setting: &Setting<'_>, count: usize) -> anyhow::Result<f64> {
    let mut counters: Vec<Counter> = (0..count).map(|_| used()).collect();
    let mut random = Random::new(u64::from(setting.round) + 1);
    for _ in 0..count / SCATTERED_PART {
        counters[random.below(count as u64) as usize] = used();
    }
    let share = (count / setting.threads).max(1);
    // Each thread takes its share, and keeps it locked.
    let shares: Vec<Mutex<&mut [Counter]>> = counters.chunks_mut(share).map(Mutex::new).collect();
    let prepare = |thread: usize| {
        let mut share = shares.get(thread).and_then(|share| share.try_lock().ok());
        let mut random = Random::new(thread as u64 + 1);
        move || {
            let share = share.as_mut().context("each thread has counters of its own")?;
            let at = random.below(share.len() as u64) as usize;
            share[at] = used();
            Ok(())
        }
    };
    let time = setting.slice(16, prepare)?.op_ns()?;
    let wrong = counters.iter().find(|counter| counter.sum() != ADDS);
    ensure!(wrong.is_none(), "{ADDS} was added, but the sum is {:?}", wrong.map(Counter::sum));
    Ok(time)
}

/// Makes a counter that has memory in the lanes.
fn used() -> Counter {
    let counter = Counter::new();
    (0..ADDS).for_each(|_| counter.inc());
    counter
}

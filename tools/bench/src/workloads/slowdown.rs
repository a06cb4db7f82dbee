//! `sum slowdown`: the loss of adders to a thread that sums 1,000 times a second.
//!
//! Two adders run at full speed on two CPUs. A third thread, confined to both, alternates between
//! an interval in which it sleeps and one in which it sums at that rate. The adds of two successive
//! intervals are compared. The CPU time of the summing thread is part of the loss.

use std::{
    hint::black_box,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use thiscpu_test_support::tool::stop;

use super::{Measured, Setting, shared_counter};
use crate::{
    contenders::{Padded, counters::Contender},
    metric::ADDERS_SLOWDOWN,
    slice, stats,
};

/// One adder on each of the two CPUs.
pub(crate) const ADDERS: usize = 2;

/// The time between the beginnings of two sums.
const SUM_PERIOD: Duration = Duration::from_millis(1);

/// The longest interval: time for twenty sums, and short enough for many pairs.
const INTERVAL_MAX: Duration = Duration::from_millis(20);

/// The shortest interval: adders must make progress in each, however short the slices are.
const INTERVAL_MIN: Duration = Duration::from_millis(5);

/// The slices that one round spends on pairs.
const SLICES: u32 = 2;

/// The number of adds between two stores of progress, each with a check of the stop flag.
const STEP: u64 = 256;

/// Measures the loss, in percent of the adders' undisturbed work.
pub(crate) fn measure<C: Contender>(setting: &Setting<'_>) -> Measured {
    let counter = shared_counter::<C>()?;
    let progress: [Padded<AtomicU64>; ADDERS] = Default::default();
    let prepare = |adder: usize| {
        let (counter, progress) = (&*counter, &*progress[adder]);
        let mut added = 0;
        move || {
            (0..STEP).for_each(|_| counter.add(1));
            added += STEP;
            // Relaxed: pairs with the load in `conduct`, which needs only a recent count.
            progress.store(added, Relaxed);
            Ok(())
        }
    };
    let conduct = || {
        // Relaxed: pairs with the adders' stores; a count may be a few adds old.
        let added = || progress.iter().map(|count| count.load(Relaxed)).sum();
        let comparing = || Ok(losses(&|| counter.sum(), &added, setting.length));
        setting.cpus.confined(0..ADDERS, comparing)
    };
    let slice = slice::run(setting.cpus, setting.threads, 1, prepare, conduct)?;
    let added = (slice.all_ops * STEP) as i64;
    let sum = counter.sum();
    ensure!(sum == added, "{added} was added, but the sum is {sum}");
    slice::check_stop()?;
    let loss = stats::median(&slice.outcome).context("the adders never got to run")?;
    Ok(vec![ADDERS_SLOWDOWN.reads(loss)])
}

/// Compares pairs of intervals and returns the losses in percent.
///
/// `added` returns how many adds were made so far. Every other pair begins with sums, so that a
/// machine whose speed changes favors neither.
pub(super) fn losses(sum: &dyn Fn() -> i64, added: &dyn Fn() -> u64, length: Duration) -> Vec<f64> {
    let interval = length.clamp(INTERVAL_MIN, INTERVAL_MAX);
    let pairs = (length * SLICES).div_duration_f64(interval * 2).round() as u32;
    let undisturbed = || adds_per_s(added, || thread::sleep(interval));
    let disturbed = || adds_per_s(added, || sum_periodically(sum, interval));
    let mut losses = Vec::new();
    for pair in 0..pairs.max(1) {
        if stop::is_requested() {
            break;
        }
        let (with, without) = if pair % 2 == 0 {
            let without = undisturbed();
            (disturbed(), without)
        } else {
            (disturbed(), undisturbed())
        };
        losses.push(100.0 * (1.0 - with / without));
    }
    losses.retain(|loss| loss.is_finite());
    losses
}

/// Returns the adds of all adders per second while `pass_time` runs.
fn adds_per_s(added: &dyn Fn() -> u64, pass_time: impl FnOnce()) -> f64 {
    let (started, added_before) = (Instant::now(), added());
    pass_time();
    let elapsed_s = started.elapsed().as_secs_f64();
    (added() - added_before) as f64 / elapsed_s
}

/// Sums at the beginning of every period. A sum that takes longer delays the next one.
fn sum_periodically(sum: &dyn Fn() -> i64, length: Duration) {
    let started = Instant::now();
    let mut next = Duration::ZERO;
    while next < length {
        thread::sleep(next.saturating_sub(started.elapsed()));
        black_box(sum());
        next += SUM_PERIOD;
    }
    thread::sleep(length.saturating_sub(started.elapsed()));
}

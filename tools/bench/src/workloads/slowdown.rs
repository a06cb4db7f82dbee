//! `sum`, case `slowdown`: how much adders lose to a thread that sums 1,000 times a second.
//!
//! Two adders run at full speed on two CPUs. A third thread, confined to the same two, alternates
//! between phases of sleep and phases of sums at that rate. The adders' progress in neighboring
//! phases is compared. The CPU time that the summing thread takes from them is part of the loss.

use std::{
    hint::black_box,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

use super::{Measured, Setting, shared_counter};
use crate::{
    contenders::{Padded, counters::Contender},
    metric::ADDERS_SLOWDOWN,
    slice, stats,
};

/// The number of adders: one for each of two CPUs.
pub(crate) const ADDERS: usize = 2;

const SUM_INTERVAL: Duration = Duration::from_millis(1);

/// The longest phase: long enough for twenty sums, and short enough for many pairs.
const WHILE_MAX: Duration = Duration::from_millis(20);

/// The shortest phase, in which adders still make progress, even if slices are shorter.
const WHILE_MIN: Duration = Duration::from_millis(5);

/// The time that one round spends on pairs of phases, in lengths of a slice.
const SLICES: u32 = 2;

/// Adds between two checks of the stop flag, and between two updates of the progress.
const STEP: u64 = 256;

/// Measures the loss in percent of the adders' undisturbed speed.
pub(crate) fn measure<C: Contender>(setting: &Setting<'_>) -> Measured {
    let counter = shared_counter::<C>()?;
    let progress: [Padded<AtomicU64>; ADDERS] = Default::default();
    let prepare = |adder: usize| {
        let (counter, progress) = (&*counter, &*progress[adder]);
        let mut added = 0;
        move || {
            (0..STEP).for_each(|_| counter.add(1));
            added += STEP;
            // Relaxed: the load in `adds_per_s` needs only a recent count.
            progress.store(added, Relaxed);
            Ok(())
        }
    };
    let conduct = || {
        let comparing = || median_loss(&*counter, &progress, setting.length);
        setting.cpus.confined(0..ADDERS, comparing).context("cannot confine the summing thread")?
    };
    let slice = slice::run(setting.cpus, setting.threads, 1, prepare, conduct)?;
    let added = ((slice.ops + slice.warmup_ops) * STEP) as i64;
    let sum = counter.sum();
    ensure!(sum == added, "adders added {added}, but the sum is {sum}");
    Ok(vec![ADDERS_SLOWDOWN.reads(slice.outcome)])
}

/// Returns the median loss, in percent, over pairs of neighboring phases.
///
/// The phase with sums comes first in every other pair, so that a machine that speeds up or slows
/// down favors neither.
fn median_loss<C: Contender>(
    counter: &C,
    progress: &[Padded<AtomicU64>],
    length: Duration,
) -> Result<f64> {
    let one_while = length.clamp(WHILE_MIN, WHILE_MAX);
    let pairs = (length * SLICES).div_duration_f64(one_while * 2).round() as u32;
    let undisturbed = || adds_per_s(progress, || thread::sleep(one_while));
    let disturbed = || adds_per_s(progress, || sum_at_intervals(counter, one_while));
    let mut losses = Vec::new();
    for pair in 0..pairs.max(1) {
        slice::check_stop()?;
        let (with, without) = if pair % 2 == 0 {
            let without = undisturbed();
            (disturbed(), without)
        } else {
            (disturbed(), undisturbed())
        };
        losses.push(100.0 * (1.0 - with / without));
    }
    losses.retain(|loss| loss.is_finite());
    stats::median(&losses).context("the adders never got to run")
}

/// Returns the adds per second of all adders while `pass_time` runs.
fn adds_per_s(progress: &[Padded<AtomicU64>], pass_time: impl FnOnce()) -> f64 {
    // Relaxed: a count that is a few adds old is as good.
    let added = || -> u64 { progress.iter().map(|count| count.load(Relaxed)).sum() };
    let (started, added_before) = (Instant::now(), added());
    pass_time();
    let elapsed_s = started.elapsed().as_secs_f64();
    (added() - added_before) as f64 / elapsed_s
}

/// Sums once at the beginning of every interval.
///
/// A sum that takes longer than an interval delays the next one.
fn sum_at_intervals<C: Contender>(counter: &C, length: Duration) {
    let started = Instant::now();
    let mut next = Duration::ZERO;
    while next < length {
        thread::sleep(next.saturating_sub(started.elapsed()));
        black_box(counter.sum());
        next += SUM_INTERVAL;
    }
    thread::sleep(length.saturating_sub(started.elapsed()));
}

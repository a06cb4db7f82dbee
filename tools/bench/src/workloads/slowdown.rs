//! `sum`, case `slowdown`: what adders lose to somebody who sums 1,000 times a second.
//!
//! Two adders run flat out on two CPUs. A third thread, confined to the same two, in turn sleeps
//! for a while and sums at that rate for a while; what the adders get done in two such neighbouring
//! whiles is compared. The time the summing thread takes from them is part of the loss.

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

/// One adder for each of the two CPUs.
pub(crate) const ADDERS: usize = 2;

const SUM_INTERVAL: Duration = Duration::from_millis(1);

/// A while is long enough for twenty sums and short enough for many pairs.
const WHILE_MAX: Duration = Duration::from_millis(20);

/// However short the slices, adders must get something done in every while.
const WHILE_MIN: Duration = Duration::from_millis(5);

/// How much of a slice's length one round spends on pairs.
const SLICES: u32 = 2;

/// Adds between two looks at the stop flag, and between two reports of progress.
const STEP: u64 = 256;

/// Measures the loss in percent of what the adders do undisturbed.
pub(crate) fn measure<C: Contender>(setting: &Setting<'_>) -> Measured {
    let counter = shared_counter::<C>()?;
    let progress: [Padded<AtomicU64>; ADDERS] = Default::default();
    let prepare = |adder: usize| {
        let (counter, progress) = (&*counter, &*progress[adder]);
        let mut added = 0;
        move || {
            (0..STEP).for_each(|_| counter.add(1));
            added += STEP;
            // Relaxed: pairs with the load in `adds_per_s`, which wants a recent count only.
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
    ensure!(sum == added, "{added} was added, but the sum is {sum}");
    Ok(vec![ADDERS_SLOWDOWN.reads(slice.outcome)])
}

/// Compares neighbouring whiles, the summing one first in every other pair, so that neither gains
/// from a machine that speeds up or slows down.
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

/// What all adders together get done a second while `pass_time` runs.
fn adds_per_s(progress: &[Padded<AtomicU64>], pass_time: impl FnOnce()) -> f64 {
    // Relaxed: pairs with the adders' stores; a count that is a few adds old is as good.
    let added = || -> u64 { progress.iter().map(|count| count.load(Relaxed)).sum() };
    let (started, added_before) = (Instant::now(), added());
    pass_time();
    let elapsed_s = started.elapsed().as_secs_f64();
    (added() - added_before) as f64 / elapsed_s
}

/// Sums once at the beginning of every interval; a sum that takes longer makes the next one late.
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

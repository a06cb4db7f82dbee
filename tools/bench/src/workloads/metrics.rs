//! `metrics`: registries of metrics that Prometheus scrapes.
//!
//! | case | an operation |
//! |---|---|
//! | `increment` | every thread adds 1 to one counter, through a handle |
//! | `scrape` | a scrape of 100,000 counters, all incremented on two CPUs since the last one |

use std::{thread, time::Instant};

use anyhow::{Context as _, Result, anyhow, ensure};

use super::{Measured, Setting};
use crate::{
    contenders::registries::{Contender, total},
    metric::{SERIES, TIME_PER_OP, TIME_PER_SCRAPE},
    slice, stats,
};

/// The number of increments between two checks of the stop flag.
const STEP: u32 = 256;

/// The number of counters that are scraped, also in a trial.
const COUNTERS: usize = 100_000;
const COUNTERS_OF_TRIAL: usize = 1_000;

/// The threads that increment them, each on a CPU of its own if there are two.
pub(crate) const SCRAPE_THREADS: usize = 2;

/// The first increments of each counter by each thread: enough for each counter to use lanes.
const FIRST_ROUNDS: usize = 20;

/// The least number of scrapes, however short the slices are.
const SCRAPES_MIN: usize = 3;

/// Measures the time of an increment. Fails if one was lost.
pub(crate) fn increment<C: Contender>(setting: &Setting<'_>) -> Measured {
    let registry = C::new();
    let counter = registry.counter("/");
    let prepare = |_| {
        let counter = counter.clone();
        move || {
            C::increment(&counter);
            Ok(())
        }
    };
    let conduct = slice::lasting(setting.length);
    let slice = slice::run(setting.cpus, setting.threads, STEP, prepare, conduct)?;
    let (told, incremented) = (total(&registry.scrape()), slice.ops + slice.warmup_ops);
    ensure!(told == incremented, "{incremented} increments were made, but the scrape has {told}");
    Ok(vec![TIME_PER_OP.reads(slice.op_ns(setting.threads, setting.cpus)?)])
}

/// Measures the time of a scrape. Fails if one lacks an increment.
pub(crate) fn scrape<C: Contender>(setting: &Setting<'_>) -> Measured {
    let registry = C::new();
    let counters = if setting.is_trial { COUNTERS_OF_TRIAL } else { COUNTERS };
    let handles: Vec<_> = (0..counters).map(|i| registry.counter(&format!("/page/{i}"))).collect();
    increment_all::<C>(setting, &handles, FIRST_ROUNDS)?;
    let mut rounds = FIRST_ROUNDS;
    let (began, mut times) = (Instant::now(), Vec::new());
    while times.len() < SCRAPES_MIN || began.elapsed() < setting.length {
        slice::check_stop()?;
        let timed = || {
            let before = Instant::now();
            let text = registry.scrape();
            (before.elapsed(), text)
        };
        let (time, text) = setting.cpus.confined(0..1, timed).context("cannot pin a thread")?;
        times.push(time.as_nanos() as f64);
        let (told, incremented) = (total(&text), (counters * SCRAPE_THREADS * rounds) as u64);
        ensure!(
            told == incremented,
            "{incremented} increments were made, but the scrape has {told}"
        );
        increment_all::<C>(setting, &handles, 1)?;
        rounds += 1;
    }
    let time = stats::median(&times).unwrap_or_default();
    Ok(vec![TIME_PER_SCRAPE.reads(time), SERIES.reads(counters as f64)])
}

/// Increments each counter from each thread, that many times.
fn increment_all<C: Contender>(
    setting: &Setting<'_>,
    handles: &[C::Handle],
    times: usize,
) -> Result<()> {
    let work = |index| {
        setting.cpus.pin(index).context("cannot pin a thread")?;
        (0..times).for_each(|_| handles.iter().for_each(C::increment));
        anyhow::Ok(())
    };
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            (0..SCRAPE_THREADS).map(|index| scope.spawn(move || work(index))).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err(anyhow!("a thread panicked")))
        };
        threads.into_iter().try_for_each(join)
    })
}

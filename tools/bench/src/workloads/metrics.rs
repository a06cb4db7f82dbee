//! `metrics`: registries of metrics that Prometheus scrapes.
//!
//! | case | an operation |
//! |---|---|
//! | `increment` | every thread adds 1 to one counter, through a handle |
//! | `look-up` | every thread looks up 64 counters with a label in turn, and adds 1 to each |
//! | `look-up-labels` | 64 counters with six labels |
//! | `look-up-static` | 64 counters with a label, whose value no contender copies |
//! | `look-up-many` | 10,000 counters with a label |
//! | `scrape` | a scrape of 100,000 counters, all incremented on two CPUs since the last one |

use std::{sync::LazyLock, time::Instant};

use anyhow::ensure;

use super::{Measured, Setting};
use crate::{
    contenders::{
        Name,
        registries::{
            Contender,
            look_up::{self, LookUp},
            total,
        },
    },
    metric::{SERIES, TIME_PER_OP, TIME_PER_SCRAPE},
    slice, stats,
};

/// The number of counters that are scraped, also in a trial.
const COUNTERS: usize = 100_000;
const COUNTERS_OF_TRIAL: usize = 1_000;

/// The largest number of counters that are looked up in turn.
const LOOKED_UP_MAX: usize = 10_000;

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
    let slice = setting.slice(256, prepare)?;
    ensure_total(&registry.scrape(), slice.all_ops)?;
    Ok(vec![TIME_PER_OP.reads(slice.op_ns()?)])
}

/// Measures the time to look one of `SERIES` counters with `N` labels up and to increment it.
///
/// The program has just made the path, or else has it in its own text. Fails if an increment was
/// lost.
pub(crate) fn look_up<const SERIES: usize, const N: usize, const MADE: bool>(
    setting: &Setting<'_>,
) -> Measured {
    let measure = match setting.contender {
        Name::MetricsExporter => look_up_in::<look_up::MetricsExporter<N>, N>,
        Name::PrometheusClient => look_up_in::<look_up::PrometheusClient<N>, N>,
        Name::ThisCpu => look_up_in::<look_up::ThisCpu<N>, N>,
        Name::ThisCpuFacade => look_up_in::<look_up::ThisCpuFacade<N>, N>,
        Name::ThisCpuShared => look_up_in::<look_up::ThisCpuShared<N>, N>,
        _ => look_up_in::<look_up::Nothing<N>, N>,
    };
    measure(setting, SERIES, MADE)
}

fn look_up_in<C: LookUp<N>, const N: usize>(
    setting: &Setting<'_>,
    series: usize,
    made: bool,
) -> Measured {
    static PATHS: LazyLock<Vec<String>> =
        LazyLock::new(|| (0..LOOKED_UP_MAX).map(|number| format!("/page/{number}")).collect());
    let (registry, paths) = (C::new(), &PATHS[..series]);
    paths.iter().for_each(|path| registry.increment(path, made));
    let prepare = |_| {
        let mut next = paths.iter().cycle();
        let registry = &registry;
        move || {
            next.next().into_iter().for_each(|path| registry.increment(path, made));
            Ok(())
        }
    };
    let slice = setting.slice(256, prepare)?;
    if setting.contender != Name::Nothing {
        ensure_total(&registry.scrape(), slice.all_ops + series as u64)?;
    }
    Ok(vec![TIME_PER_OP.reads(slice.op_ns()?)])
}

/// Measures the time of a scrape. Fails if one lacks an increment.
pub(crate) fn scrape<C: Contender>(setting: &Setting<'_>) -> Measured {
    let registry = C::new();
    let counters = if setting.is_trial { COUNTERS_OF_TRIAL } else { COUNTERS };
    let handles: Vec<_> = (0..counters).map(|i| registry.counter(&format!("/page/{i}"))).collect();
    // Increments each counter from each thread, that many times.
    let increment_all = |times: usize| {
        let work = |_| (0..times).for_each(|_| handles.iter().for_each(C::increment));
        setting.cpus.on_each(SCRAPE_THREADS, work)
    };
    increment_all(FIRST_ROUNDS)?;
    let mut rounds = FIRST_ROUNDS;
    let (began, mut times) = (Instant::now(), Vec::new());
    while times.len() < SCRAPES_MIN || began.elapsed() < setting.length {
        slice::check_stop()?;
        let timed = || {
            let before = Instant::now();
            let text = registry.scrape();
            Ok((before.elapsed(), text))
        };
        let (time, text) = setting.cpus.confined(0..1, timed)?;
        times.push(time.as_nanos() as f64);
        ensure_total(&text, (counters * SCRAPE_THREADS * rounds) as u64)?;
        increment_all(1)?;
        rounds += 1;
    }
    let time = stats::median(&times).unwrap_or_default();
    Ok(vec![TIME_PER_SCRAPE.reads(time), SERIES.reads(counters as f64)])
}

fn ensure_total(text: &str, incremented: u64) -> anyhow::Result<()> {
    let told = total(text);
    ensure!(told == incremented, "{incremented} increments were made, but the scrape has {told}");
    Ok(())
}

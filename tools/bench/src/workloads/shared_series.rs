//! `shared`: inserts into the registry of a segment, and scrapes of it without text.

use std::time::Instant;

use anyhow::ensure;
use thiscpu::{Scrape, Segment, SegmentError, SegmentView, SharedFamily, SharedSeries};

use super::{Measured, Setting};
use crate::{
    metric::{SERIES, TIME_PER_OP, TIME_PER_SCRAPE},
    slice, stats,
};

/// The number of series, also in a trial.
const SERIES_MADE: usize = 100_000;
const SERIES_OF_TRIAL: usize = 1_000;

/// The threads that count in all series before each scrape, each on a CPU of its own.
pub(crate) const SCRAPE_THREADS: usize = 2;

/// The processes that count and end before scrapes.
const DEAD: usize = 1_000;

/// The least number of measurements, however short the slices are.
const TIMES_MIN: usize = 3;

fn series_of(setting: &Setting<'_>) -> usize {
    if setting.is_trial { SERIES_OF_TRIAL } else { SERIES_MADE }
}

fn registry(series: usize) -> Result<(Segment, SharedFamily), SegmentError> {
    let segment = Segment::options().series(series as u32).anonymous()?;
    let family = segment.registry()?.counter_family("requests", "Requests", &["path"])?;
    Ok((segment, family))
}

/// Measures the time of an insert, with the memory that it takes.
pub(crate) fn insert(setting: &Setting<'_>) -> Measured {
    let series = series_of(setting);
    let names: Vec<_> = (0..series).map(|number| format!("/page/{number}")).collect();
    let (began, mut times) = (Instant::now(), Vec::new());
    while times.len() < TIMES_MIN || began.elapsed() < setting.length {
        slice::check_stop()?;
        let (segment, family) = registry(series)?;
        let insert_all = || {
            let before = Instant::now();
            for name in &names {
                family.series(&[name])?.inc();
            }
            Ok(before.elapsed())
        };
        let time = setting.cpus.confined(0..1, insert_all)?;
        times.push(time.as_nanos() as f64 / series as f64);
        let made = segment.registry()?.usage()?.series;
        ensure!(made == series as u64, "{series} series were made, but there are {made}");
    }
    Ok(vec![TIME_PER_OP.reads(stats::median(&times).unwrap_or_default())])
}

/// Measures the time of a scrape at one instant.
pub(crate) fn scrape(setting: &Setting<'_>) -> Measured {
    scrape_after(setting, 0)
}

/// Measures that time after many processes have counted and ended.
pub(crate) fn scrape_after_deaths(setting: &Setting<'_>) -> Measured {
    scrape_after(setting, DEAD)
}

fn scrape_after(setting: &Setting<'_>, deaths: usize) -> Measured {
    let (segment, family) = registry(series_of(setting))?;
    let registry = segment.registry()?;
    measure(setting, &family, deaths, || registry.scrape())
}

/// Measures the time of a scrape by a process that can only read.
pub(crate) fn scrape_by_view(setting: &Setting<'_>) -> Measured {
    let (segment, family) = registry(series_of(setting))?;
    let view = SegmentView::from_fd(segment.as_fd()?.try_clone_to_owned()?)?.registry()?;
    measure(setting, &family, 0, || view.scrape())
}

fn measure(
    setting: &Setting<'_>,
    family: &SharedFamily,
    deaths: usize,
    scrape: impl Fn() -> Result<Scrape, SegmentError>,
) -> Measured {
    let series = series_of(setting);
    let make = |number: usize| family.series(&[&format!("/page/{number}")]);
    let handles: Vec<SharedSeries> = (0..series).map(make).collect::<Result<_, _>>()?;
    for _ in 0..deaths {
        die_after(|| handles.iter().step_by(10).for_each(SharedSeries::inc))?;
    }
    let count_in_all = || {
        let work = |_| handles.iter().for_each(SharedSeries::inc);
        setting.cpus.on_each(SCRAPE_THREADS, work)
    };
    let mut rounds = 0;
    let (began, mut times) = (Instant::now(), Vec::new());
    while times.len() < TIMES_MIN || began.elapsed() < setting.length {
        slice::check_stop()?;
        count_in_all()?;
        rounds += SCRAPE_THREADS as u64;
        let timed = || {
            let before = Instant::now();
            let scrape = scrape()?;
            Ok((before.elapsed(), scrape))
        };
        let (time, scrape) = setting.cpus.confined(0..1, timed)?;
        times.push(time.as_nanos() as f64);
        let sum: u64 = scrape.samples().map(|sample| sample.low()).sum();
        let of_dead = series.div_ceil(10) * deaths;
        let wanted = series as u64 * rounds + of_dead as u64;
        ensure!(sum == wanted, "{wanted} was added, but the scrape has {sum}");
    }
    let time = stats::median(&times).unwrap_or_default();
    Ok(vec![TIME_PER_SCRAPE.reads(time), SERIES.reads(series as f64)])
}

/// Calls a function in a forked process, which then is killed.
fn die_after(work: impl Fn()) -> anyhow::Result<()> {
    // SAFETY: the child only counts, and then kills itself.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error().into()),
        0 => {
            work();
            // SAFETY: the calls have no preconditions.
            unsafe {
                libc::kill(libc::getpid(), libc::SIGKILL);
                libc::_exit(1)
            }
        }
        child => {
            let mut status = 0;
            // SAFETY: the status is valid for writes.
            let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
            ensure!(waited == child && libc::WIFSIGNALED(status), "a child was not killed");
            Ok(())
        }
    }
}

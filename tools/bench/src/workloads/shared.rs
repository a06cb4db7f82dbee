//! `shared`: forked processes add to one counter, and what else its users wait for.

use std::{env, fs, path::PathBuf, process};

use anyhow::{Context as _, ensure};
use thiscpu::Segment;

use super::{Measured, Setting, slowdown::losses};
use crate::{
    contenders::{
        Name,
        processes::{self, Contender},
    },
    metric::{ADDERS_SLOWDOWN, TIME_PER_OP},
    processes::run,
    slice, stats,
};

/// The contenders that have a sum of all processes' adds.
pub(crate) const SUMMED: &[Name] =
    &[Name::Atomic, Name::Uncontended, Name::RobustMutex, Name::SysvSemaphore, Name::ThisCpu];

/// Measures the time of an add. Fails if one was lost.
pub(crate) fn add<C: Contender>(setting: &Setting<'_>) -> Measured {
    let counter = C::try_new()?;
    let sleep = |_: &dyn Fn() -> u64| slice::sleep(setting.length);
    let slice = run(setting.cpus, setting.threads, &counter, sleep)?;
    Ok(vec![TIME_PER_OP.reads(slice.op_ns()?)])
}

/// Measures the loss of adding processes to sums, in percent of their undisturbed work.
pub(crate) fn slowdown(setting: &Setting<'_>) -> Measured {
    processes::dispatch!(setting.contender, C => slowdown_of::<C>(setting))
}

fn slowdown_of<C: Contender>(setting: &Setting<'_>) -> Measured {
    let counter = C::try_new()?;
    let conduct = |added: &dyn Fn() -> u64| {
        let comparing = || Ok(losses(&|| counter.sum(), added, setting.length));
        setting.cpus.confined(0..setting.threads, comparing)
    };
    let slice = run(setting.cpus, setting.threads, &counter, conduct)?;
    slice::check_stop()?;
    let loss = stats::median(&slice.outcome).context("the adders never got to run")?;
    Ok(vec![ADDERS_SLOWDOWN.reads(loss)])
}

/// Measures the time of an exact sum while nobody adds.
pub(crate) fn sum<const LANES: u32>(setting: &Setting<'_>) -> Measured {
    let segment = Segment::options().lanes(LANES).anonymous()?;
    let counter = segment.counter("adds")?;
    counter.add(7);
    let prepare = |_| {
        || {
            let sum = counter.sum();
            ensure!(sum == 7, "7 was added, but the sum is {sum}");
            Ok(())
        }
    };
    Ok(vec![TIME_PER_OP.reads(setting.slice(64, prepare)?.op_ns()?)])
}

/// A file that is removed when this is dropped.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Measures the time to attach to a segment, add once, and detach.
pub(crate) fn attach(setting: &Setting<'_>) -> Measured {
    let tmpfs = PathBuf::from("/dev/shm");
    let directory = if tmpfs.is_dir() { tmpfs } else { env::temp_dir() };
    let file = Removed(directory.join(format!("thiscpu-bench-{}", process::id())));
    let segment = Segment::create(&file.0)?;
    let counter = segment.counter("adds")?;
    let prepare = |_| {
        || {
            Segment::open(&file.0)?.counter("adds")?.inc();
            Ok(())
        }
    };
    let slice = setting.slice(16, prepare)?;
    let (sum, added) = (counter.sum(), slice.all_ops as i64);
    ensure!(sum == added, "{added} was added, but the sum is {sum}");
    Ok(vec![TIME_PER_OP.reads(slice.op_ns()?)])
}

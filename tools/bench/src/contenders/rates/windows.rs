//! The most calls that a limit of 100 a second admits within a second.

use std::{
    collections::VecDeque,
    convert::Infallible,
    future::{Ready, ready},
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use thiscpu::RateWindow;
use thiscpu_test_support::tool::stop;
use tower::{Service, limit::RateLimit};

use super::{Contender, Governor, Ratelimit, ThisCpu};
use crate::{contenders::Name, slice::Interrupted};

/// The limit, and the burst of a bucket.
const LIMIT: u32 = 100;
const SECOND: Duration = Duration::from_secs(1);

/// A service that does nothing, below the tower crate's own `RateLimit`.
struct Inner;

impl Service<()> for Inner {
    type Response = ();
    type Error = Infallible;
    type Future = Ready<Result<(), Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, (): ()) -> Self::Future {
        ready(Ok(()))
    }
}

/// `thiscpu-window`: the library's window.
struct ThisCpuWindow(RateWindow);

impl Contender for ThisCpuWindow {
    fn new(per_second: u32, _: u32) -> Self {
        Self(RateWindow::new(per_second.into(), SECOND))
    }

    fn try_acquire(&self) -> bool {
        self.0.try_acquire(1).is_ok()
    }
}

/// Calls for two and a half seconds, after a second of rest; returns the worst second.
pub(crate) fn worst_second(contender: Name) -> anyhow::Result<usize> {
    match contender {
        Name::Governor => of::<Governor>(),
        Name::Ratelimit => of::<Ratelimit>(),
        Name::ThisCpu => of::<ThisCpu>(),
        Name::ThisCpuWindow => of::<ThisCpuWindow>(),
        Name::Tower => of_tower(),
        other => unreachable!("{other} has no worst second"),
    }
}

fn of<C: Contender>() -> anyhow::Result<usize> {
    let limit = C::new(LIMIT, LIMIT);
    worst(|| Ok(limit.try_acquire()))
}

/// Polls tower's service until it is ready, and calls it.
fn of_tower() -> anyhow::Result<usize> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .context("cannot start a runtime")?;
    let _context = runtime.enter();
    let mut service = RateLimit::new(Inner, tower::limit::rate::Rate::new(LIMIT.into(), SECOND));
    worst(|| {
        match service.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(())) => drop(service.call(())),
            Poll::Ready(Err(never)) => match never {},
            Poll::Pending => {
                // So that the runtime's timers go on.
                runtime.block_on(tokio::task::yield_now());
                return Ok(false);
            }
        }
        Ok(true)
    })
}

/// Returns the most calls that `admits` lets through within a second.
///
/// The times are those after a call that is admitted and before the last one: the calls are wholly
/// within the second.
fn worst(mut admits: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<usize> {
    // A bucket that was full for long, and a second of tower's that has just begun late.
    let first = admits()?;
    ensure!(first, "the first call was refused");
    std::thread::sleep(SECOND - Duration::from_millis(20));
    let (began, mut times, mut worst) = (Instant::now(), VecDeque::new(), 0);
    while began.elapsed() < SECOND * 5 / 2 {
        if stop::is_requested() {
            bail!(Interrupted);
        }
        let before = began.elapsed();
        if !admits()? {
            continue;
        }
        let after = began.elapsed();
        times.push_back(before);
        while times.front().is_some_and(|&first| first + SECOND < after) {
            times.pop_front();
        }
        worst = worst.max(times.len());
    }
    Ok(worst)
}

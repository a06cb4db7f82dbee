//! Signal handlers that count, in the middle of allocations: no count may be lost.

use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::{io, ptr};

use fastrand::Rng;
use thiscpu::Counter;
use thiscpu_test_support::signals;

use super::super::stage::Stage;
use super::churn::{self, Exchange, LEFT_MAX};
use crate::violation::{Checked, Violation, equal};

const THREADS: usize = 3;
/// The CPU time from one signal to the next.
const INTERVAL_MICROS: i64 = 2_000;

static COUNTED: Counter = Counter::new();
/// Handlers that have begun and ended. SeqCst, for simplicity.
static BEGUN: AtomicI64 = AtomicI64::new(0);
static ENDED: AtomicI64 = AtomicI64::new(0);

extern "C" fn count(_signal: i32) {
    BEGUN.fetch_add(1, SeqCst);
    COUNTED.inc();
    ENDED.fetch_add(1, SeqCst);
}

pub(super) fn run(stage: &Stage<'_>, random: &mut Rng) -> Checked {
    // SAFETY: the handler uses a counter, which supports handlers, and atomics.
    let installed =
        unsafe { signals::install(libc::SIGPROF, count as *const (), libc::SA_RESTART) };
    let started = installed.and_then(|()| set_timer(INTERVAL_MICROS));
    started.map_err(|_| Violation { what: "timers of this process", low: 1, high: 1, found: 0 })?;
    let exchange = Exchange::new(LEFT_MAX);
    stage.run_threads(THREADS, random, |_, random| {
        churn::run(stage, random, &exchange, usize::MAX)
    })?;
    let _ = set_timer(0);
    check_count()?;
    exchange.free_all(stage)
}

/// Sends a signal to this process in intervals of CPU time, or stops it with 0.
fn set_timer(micros: i64) -> io::Result<()> {
    let interval = libc::timeval { tv_sec: 0, tv_usec: micros };
    let timer = libc::itimerval { it_interval: interval, it_value: interval };
    // SAFETY: the timer is a live local, and no old value is requested.
    match unsafe { libc::setitimer(libc::ITIMER_PROF, &timer, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Checks that the counter has the count of each handler.
fn check_count() -> Checked {
    loop {
        let (ended, sum) = (ENDED.load(SeqCst), COUNTED.sum());
        // No handler has begun before the sum and ended after it.
        if BEGUN.load(SeqCst) == ended {
            return equal("signals that were counted", ended, sum);
        }
        std::thread::yield_now();
    }
}

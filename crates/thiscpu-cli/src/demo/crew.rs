//! The threads of a scene: they work until the scene's time is over.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use super::screen::watch;

/// Operations between two looks at whether the scene is over.
const BATCH: u64 = 64;

/// Returns how many CPUs this process may use.
pub(super) fn cpus() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Returns how many threads a scene has.
///
/// There are more than CPUs, so that threads lose their CPU in the middle of operations, as they
/// do in real programs.
pub(super) fn threads() -> usize {
    2 * cpus().max(2)
}

/// Returns a generator of 31-bit numbers; different threads get different ones.
pub(super) fn random(thread: usize) -> impl FnMut() -> u64 {
    let mut state = thread as u64 + 1;
    move || {
        // Knuth's linear congruential generator; the upper bits are good enough to vary a load.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state >> 33
    }
}

/// What the threads of a scene did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    pub(super) operations: u64,
    busy: Duration,
}

impl Work {
    /// Nanoseconds per operation, as one CPU sees it.
    pub(super) fn ns_each(&self) -> f64 {
        // The threads share the CPUs, so together they had no more time than all CPUs.
        let share = cpus() as f64 / threads() as f64;
        self.busy.as_nanos() as f64 * share.min(1.0) / self.operations.max(1) as f64
    }
}

/// Runs a worker on each thread for `length`, and shows what `look` returns meanwhile.
///
/// `prepare` makes the worker of each index; a worker is called again and again.
pub(super) fn run<W: FnMut() + Send>(
    length: Duration,
    prepare: impl Fn(usize) -> W,
    look: impl FnMut() -> String,
) -> Work {
    // Relaxed: the threads are joined; nothing else depends on when they see it.
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads())
            .map(|index| {
                let (mut work, is_over) = (prepare(index), &is_over);
                scope.spawn(move || {
                    let (begun, mut operations) = (Instant::now(), 0);
                    while !is_over.load(Relaxed) {
                        (0..BATCH).for_each(|_| work());
                        operations += BATCH;
                    }
                    Work { operations, busy: begun.elapsed() }
                })
            })
            .collect();
        watch(length, look);
        is_over.store(true, Relaxed);
        let mut all = Work::default();
        for worker in workers {
            let work = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            all.operations += work.operations;
            all.busy += work.busy;
        }
        all
    })
}

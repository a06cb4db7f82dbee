//! A slice: threads that start together, repeat one operation, and stop together.

use std::{
    fmt,
    sync::{
        RwLock,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{self, SyncSender},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Error, Result, ensure};
use thiscpu_test_support::tool::stop;

use crate::{
    cpu_wait,
    cpus::{self, Cpus},
};

/// The stack of a thread: enough for the workloads, and small enough for 4,096 threads.
pub(crate) const STACK_BYTES: usize = 256 << 10;

#[derive(Debug)]
pub(crate) struct Slice<T> {
    /// Operations during the slice.
    pub(crate) ops: u64,
    /// All operations, including those before the slice, to warm up.
    pub(crate) all_ops: u64,
    /// Wall time from start to stop.
    pub(crate) elapsed: Duration,
    /// The time of all operations together, in nanoseconds.
    ///
    /// Wall time x CPUs if there are more threads than CPUs.
    pub(crate) ops_ns: f64,
    /// The result of the conducting thread.
    pub(crate) outcome: T,
}

impl<T> Slice<T> {
    /// Returns the nanoseconds of an operation **as a thread sees it while it runs**.
    ///
    /// With at most one thread per CPU, it is the time of all threads / operations, without the
    /// time in which another program had a thread's CPU. With more threads, waits for each other
    /// cannot be told from that time, so it is the wall time x CPUs / operations. Then twice as
    /// many threads on busy CPUs change nothing, unless they slow each other down.
    ///
    /// Fails if an end is requested: the slice may have been cut short.
    pub(crate) fn op_ns(&self) -> Result<f64> {
        check_stop()?;
        let elapsed = self.elapsed;
        ensure!(self.ops > 0, "no operation was completed in {elapsed:?}: take longer slices");
        Ok(self.ops_ns / self.ops as f64)
    }
}

/// Runs one slice.
///
/// Each of `threads` threads is pinned, calls `prepare` with its index, does `step` operations to
/// warm up, and waits for the others. Then all repeat their operation while `conduct` runs on the
/// calling thread, until it returns. Threads check the stop flag every `step` operations, so that
/// the check costs almost nothing.
pub(crate) fn run<Op, T>(
    cpus: &Cpus,
    threads: usize,
    step: u32,
    prepare: impl Fn(usize) -> Op + Sync,
    conduct: impl FnOnce() -> Result<T>,
) -> Result<Slice<T>>
where
    Op: FnMut() -> Result<()>,
{
    let signals = Signals::default();
    let has_cpu_each = threads <= cpus.len();
    let work = |index: usize, is_ready| {
        cpus.pin(index)?;
        // If each thread has a CPU, its own time counts, and it may run a little longer. So there
        // are operations even on a busy machine, where a slice may be over before a thread begins.
        signals.obey(step, u64::from(has_cpu_each), prepare(index), is_ready)
    };
    let (is_ready, ready) = mpsc::sync_channel(threads);
    let (done, elapsed, outcome) = thread::scope(|scope| {
        let stop_at_last = StopOnDrop(&signals.stop);
        let closed_gate = signals.gate.write();
        let spawn = |index| {
            let (work, is_ready) = (&work, is_ready.clone());
            thread::Builder::new()
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, move || work(index, is_ready))
                .with_context(|| format!("cannot start thread {} of {threads}", index + 1))
        };
        let spawned: Result<Vec<_>> = (0..threads).map(spawn).collect();
        drop(is_ready);
        // A thread that fails drops its sender without a message, so that this does not wait.
        let all_are_ready = ready.iter().take(threads).count() == threads;
        // The clock is read first: after the start, many threads compete with this one for a CPU.
        let started = Instant::now();
        drop(closed_gate);
        let outcome = all_are_ready.then(conduct);
        let elapsed = started.elapsed();
        drop(stop_at_last);
        let mut all = Done::default();
        for thread in spawned? {
            let one = cpus::join(thread)?;
            all.ops += one.ops;
            all.worked += one.worked;
        }
        anyhow::Ok((all, elapsed, outcome.context("a thread was not ready")??))
    })?;
    let all_ops = done.ops + u64::from(step) * threads as u64;
    let ops_ns = match has_cpu_each {
        true => done.worked.as_nanos() as f64,
        false => elapsed.as_nanos() as f64 * cpus.len() as f64,
    };
    Ok(Slice { ops: done.ops, all_ops, elapsed, ops_ns, outcome })
}

/// The work of a thread from start to stop.
#[derive(Default)]
struct Done {
    ops: u64,
    worked: Duration,
}

/// The signals to the threads: they start when the gate opens, and stop on the flag.
#[derive(Default)]
struct Signals {
    gate: RwLock<()>,
    stop: AtomicBool,
}

impl Signals {
    /// Repeats `op` from start to stop, but at least `least` times, and returns the work done.
    fn obey(
        &self,
        step: u32,
        least: u64,
        mut op: impl FnMut() -> Result<()>,
        is_ready: SyncSender<()>,
    ) -> Result<Done> {
        let mut is_ready = Some(is_ready);
        let (mut started, mut waited_before, mut ops) = (Instant::now(), Duration::ZERO, 0);
        loop {
            // Only here, for warming up too: then the compiler inlines `op`, and the harness adds
            // no call to what it measures.
            for _ in 0..step {
                op()?;
            }
            if let Some(is_ready) = is_ready.take() {
                // Sending cannot fail, since the receiver outlives every sender. The sender is
                // dropped now: the receiver waits while there is one.
                let _ = is_ready.send(());
                drop(is_ready);
                drop(self.gate.read());
                (started, waited_before) = (Instant::now(), cpu_wait::waited());
            } else {
                ops += u64::from(step);
            }
            // Relaxed: pairs with the store in `StopOnDrop`; a late stop does no harm.
            if ops >= least && self.stop.load(Relaxed) {
                break;
            }
        }
        let waited = cpu_wait::waited().saturating_sub(waited_before);
        Ok(Done { ops, worked: started.elapsed().saturating_sub(waited) })
    }
}

/// Stops the threads, also when the conductor panics and the scope joins them.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        // Relaxed: pairs with the load in `Signals::obey`; joining the threads orders all else.
        self.0.store(true, Relaxed);
    }
}

/// The error of a measurement that ended because an end of the run is requested.
///
/// Any other error is a failure, whether or not an end is requested.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

/// Sleeps for `length`, or until an end is requested.
///
/// It never fails, so that a slice that is cut short is still checked. Then [`Slice::op_ns`] fails.
pub(crate) fn sleep(length: Duration) -> Result<()> {
    stop::sleep(length);
    Ok(())
}

/// Fails with [`Interrupted`] if an end is requested.
pub(crate) fn check_stop() -> Result<()> {
    if stop::is_requested() { Err(Error::msg(Interrupted)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    use super::*;

    #[test]
    fn operations_are_counted_once() {
        let cpus = Cpus::allowed().unwrap();
        let done = AtomicU64::new(0);
        let prepare = |_| {
            || {
                done.fetch_add(1, SeqCst);
                Ok(())
            }
        };
        let slice = run(&cpus, 3, 16, prepare, || sleep(Duration::from_millis(5))).unwrap();
        assert_eq!(slice.all_ops, done.load(SeqCst));
    }

    #[test]
    fn slice_fails_with_an_operation() {
        let cpus = Cpus::allowed().unwrap();
        let fails_at = |limit: u32| {
            let mut count = 0;
            move || {
                count += 1;
                if count > limit { Err(anyhow::anyhow!("over")) } else { Ok(()) }
            }
        };
        for limit in [0, 100] {
            let conduct = || sleep(Duration::from_millis(5));
            let error = run(&cpus, 2, 1, |_| fails_at(limit), conduct).unwrap_err();
            assert_eq!(error.to_string(), "over");
        }
    }
}

//! A slice: threads that start together, do one thing over and over, and stop together.

use std::{
    sync::{
        RwLock,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow};

use crate::cpus::Cpus;

/// Room for what the workloads call; small, so that thousands of threads can be asked for.
pub(crate) const STACK_BYTES: usize = 256 << 10;

/// What a slice came to.
#[derive(Debug)]
pub(crate) struct Slice<T> {
    /// Operations done while the slice ran.
    pub(crate) ops: u64,
    /// Operations done before it, to warm up.
    pub(crate) warmup_ops: u64,
    /// Wall time from letting the threads go to telling them to stop.
    pub(crate) elapsed: Duration,
    /// What the conducting thread made of it.
    pub(crate) outcome: T,
}

impl<T> Slice<T> {
    /// Nanoseconds an operation took **as a thread sees it while it runs**: the wall time of every
    /// CPU that had a thread to run, divided by the operations of all threads.
    ///
    /// Doubling the threads on CPUs that are all busy therefore changes nothing, unless they
    /// hinder each other.
    pub(crate) fn op_ns(&self, threads: usize, cpus: &Cpus) -> Result<f64> {
        if self.ops == 0 {
            return Err(anyhow!(
                "no operation was completed in {:?}: take longer slices",
                self.elapsed
            ));
        }
        let busy_cpus = threads.min(cpus.len()) as f64;
        Ok(self.elapsed.as_nanos() as f64 * busy_cpus / self.ops as f64)
    }
}

/// Runs one slice.
///
/// Each of `threads` threads is pinned, calls `prepare` with its index, does `step` operations to
/// warm up, and waits for the others. Then all repeat their operation while `conduct` runs on the
/// calling thread; its return ends the slice. Threads look at the stop flag once every `step`
/// operations, so that looking costs next to nothing.
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
    let work = |index: usize, is_ready| {
        cpus.pin(index)
            .with_context(|| format!("cannot pin a thread to CPU {}", cpus.id(index)))?;
        signals.obey(step, prepare(index), is_ready)
    };
    let work = &work;
    thread::scope(|scope| {
        let stop_at_last = StopOnDrop(&signals.stop);
        let closed_gate = signals.gate.write();
        let (is_ready, ready) = mpsc::channel();
        let spawned: Result<Vec<_>> = (0..threads)
            .map(|index| {
                let is_ready = is_ready.clone();
                thread::Builder::new()
                    .stack_size(STACK_BYTES)
                    .spawn_scoped(scope, move || work(index, is_ready))
                    .with_context(|| format!("cannot start thread {} of {threads}", index + 1))
            })
            .collect();
        drop(is_ready);
        // A thread that fails drops its sender without a message, so that nobody is waited for who
        // will not come.
        let all_are_ready = ready.iter().take(threads).count() == threads;
        // The clock is read first: with many threads to run, this one may get no CPU for a while
        // after it has let them go.
        let started = Instant::now();
        drop(closed_gate);
        let outcome = all_are_ready.then(conduct);
        let elapsed = started.elapsed();
        drop(stop_at_last);
        let mut ops = 0;
        for thread in spawned? {
            ops += thread.join().map_err(|_| anyhow!("a thread panicked"))??;
        }
        Ok(Slice {
            ops,
            warmup_ops: u64::from(step) * threads as u64,
            elapsed,
            outcome: outcome.context("a thread was not ready")??,
        })
    })
}

/// How the conductor tells the threads to start, by opening the gate, and to stop.
#[derive(Default)]
struct Signals {
    gate: RwLock<()>,
    stop: AtomicBool,
}

impl Signals {
    /// Does `op` from start to stop and returns how often.
    fn obey(
        &self,
        step: u32,
        mut op: impl FnMut() -> Result<()>,
        is_ready: mpsc::Sender<()>,
    ) -> Result<u64> {
        repeat(step, &mut op)?;
        // The receiver outlives every sender, so that sending cannot fail. The sender must go now:
        // while it lives, the other end waits for more.
        let _ = is_ready.send(());
        drop(is_ready);
        drop(self.gate.read());
        let mut ops = 0;
        // Relaxed: pairs with the store in `StopOnDrop`; to be told a little late does no harm.
        while !self.stop.load(Relaxed) {
            repeat(step, &mut op)?;
            ops += u64::from(step);
        }
        Ok(ops)
    }
}

/// Tells the threads to stop, also when the conductor panics and the scope goes on to join them.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        // Relaxed: pairs with the load in `Signals::obey`; joining orders everything else.
        self.0.store(true, Relaxed);
    }
}

#[inline(always)]
fn repeat(times: u32, op: &mut impl FnMut() -> Result<()>) -> Result<()> {
    for _ in 0..times {
        op()?;
    }
    Ok(())
}

/// Conducts a slice of a given length by sleeping through it.
pub(crate) fn lasting(length: Duration) -> impl FnOnce() -> Result<()> {
    move || {
        thread::sleep(length);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    use super::*;

    #[test]
    fn every_operation_is_counted_once() {
        let cpus = Cpus::allowed().unwrap();
        let done = AtomicU64::new(0);
        let slice = run(
            &cpus,
            3,
            16,
            |_| {
                || {
                    done.fetch_add(1, SeqCst);
                    Ok(())
                }
            },
            lasting(Duration::from_millis(5)),
        )
        .unwrap();
        assert_eq!(slice.ops + slice.warmup_ops, done.load(SeqCst));
    }

    #[test]
    fn a_failing_operation_fails_the_slice() {
        let cpus = Cpus::allowed().unwrap();
        let fails_at = |limit: u32| {
            let mut count = 0;
            move || {
                count += 1;
                if count > limit { Err(anyhow!("over")) } else { Ok(()) }
            }
        };
        for limit in [0, 100] {
            let conduct = lasting(Duration::from_millis(5));
            let error = run(&cpus, 2, 1, |_| fails_at(limit), conduct).unwrap_err();
            assert_eq!(error.to_string(), "over");
        }
    }
}

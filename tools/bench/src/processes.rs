//! A slice of processes that start together, repeat one operation, and stop together.

use std::{
    sync::atomic::{
        AtomicBool, AtomicI64, AtomicU32, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use thiscpu_test_support::child;

use crate::{
    contenders::{
        Padded,
        processes::{PROCESSES_MAX, Repeated, SharedMemory, Zeroed},
    },
    cpu_wait,
    cpus::Cpus,
    slice::{self, Slice},
};

/// How often the conductor looks whether all processes are ready.
const LOOK: Duration = Duration::from_micros(100);

/// The time in which all processes must be ready.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the conductor and the processes meet.
struct Board {
    ready: Padded<AtomicU32>,
    is_open: Padded<AtomicBool>,
    stop: Padded<AtomicBool>,
    processes: [Padded<Work>; PROCESSES_MAX],
}

/// The work of a process from start to stop.
struct Work {
    ops: AtomicU64,
    worked_ns: AtomicU64,
    /// What only this process knows of the result.
    own: AtomicI64,
}

// SAFETY: all fields are atomics, of which zeros are a valid value, and which need no drop.
unsafe impl Zeroed for Board {}

/// Runs one slice in which `count` forked processes repeat what they measure.
///
/// Each is pinned, warms up, and waits for the others. Then all work while `conduct` runs in the
/// calling process. It gets a function that returns how often they have done it so far. Fails if
/// the result is wrong.
pub(crate) fn run<R: Repeated, T>(
    cpus: &Cpus,
    count: usize,
    repeated: &R,
    conduct: impl FnOnce(&dyn Fn() -> u64) -> Result<T>,
) -> Result<Slice<T>> {
    ensure!(count <= PROCESSES_MAX, "{count} processes: at most {PROCESSES_MAX} can take part");
    let board = SharedMemory::<Board>::zeroed()?;
    let mut children = Children::default();
    for process in 0..count {
        match child::try_fork().context("cannot start a process")? {
            0 => child::exit_with(|| work(cpus, &board, repeated, process)),
            id => children.0.push(id),
        }
    }
    let began = Instant::now();
    // Acquire: pairs with the Release in `work`.
    while board.ready.load(Acquire) < count as u32 {
        slice::check_stop()?;
        ensure!(began.elapsed() < PATIENCE, "processes were not ready after {PATIENCE:?}");
        thread::sleep(LOOK);
    }
    let own = || board.processes.iter().take(count);
    // Relaxed: pairs with the store in `work`; a count may be a little old.
    let done = || own().map(|it| it.ops.load(Relaxed)).sum();
    let started = Instant::now();
    // Release: pairs with the Acquire in `work`.
    board.is_open.store(true, Release);
    let outcome = conduct(&done);
    let elapsed = started.elapsed();
    // Relaxed: pairs with the load in `work`; a late stop does no harm.
    board.stop.store(true, Relaxed);
    children.wait()?;
    let ops = done();
    let all_ops = ops + u64::from(R::STEP) * count as u64;
    // Relaxed: the processes have ended.
    repeated.check(all_ops, own().map(|it| it.own.load(Relaxed)).sum())?;
    let ops_ns = match count <= cpus.len() {
        true => own().map(|it| it.worked_ns.load(Relaxed)).sum::<u64>() as f64,
        false => elapsed.as_nanos() as f64 * cpus.len() as f64,
    };
    Ok(Slice { ops, all_ops, elapsed, ops_ns, outcome: outcome? })
}

/// Works from start to stop, in a process of its own, and returns its exit status.
fn work<R: Repeated>(cpus: &Cpus, board: &Board, repeated: &R, process: usize) -> i32 {
    // The alarm is for children that hang. A slice may be longer, and the parent's end is enough.
    // SAFETY: both calls take numbers.
    unsafe {
        libc::alarm(0);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    }
    if cpus.pin(process).is_err() {
        return 1;
    }
    let own = &board.processes[process];
    let mut ops = 0;
    let (mut started, mut waited_before) = (Instant::now(), Duration::ZERO);
    let mut is_warm = false;
    loop {
        // Only here, for warming up too, so that the harness adds no call to what it measures.
        for _ in 0..R::STEP {
            repeated.once(process);
        }
        if is_warm {
            ops += u64::from(R::STEP);
            // Relaxed: pairs with the load of the conductor, which needs only a recent count.
            own.ops.store(ops, Relaxed);
            // Relaxed: as in `run`.
            if board.stop.load(Relaxed) {
                break;
            }
        } else {
            is_warm = true;
            // Release: pairs with the Acquire in `run`.
            board.ready.fetch_add(1, Release);
            // Acquire: pairs with the Release in `run`.
            while !board.is_open.load(Acquire) {
                thread::yield_now();
            }
            (started, waited_before) = (Instant::now(), cpu_wait::waited());
        }
    }
    let waited = cpu_wait::waited().saturating_sub(waited_before);
    let worked = started.elapsed().saturating_sub(waited);
    // Relaxed, both: the end of the process orders them.
    own.worked_ns.store(worked.as_nanos() as u64, Relaxed);
    own.own.store(repeated.own(), Relaxed);
    0
}

/// Children, which are killed if nobody waits for them.
#[derive(Default)]
struct Children(Vec<i32>);

impl Children {
    fn wait(mut self) -> Result<()> {
        while let Some(child) = self.0.pop() {
            let status = child::wait(child);
            if status != 0 {
                bail!("a process ended with the wait status {status:#x}");
            }
        }
        Ok(())
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for &child in &self.0 {
            // SAFETY: the child has not been waited for, so the id is its own.
            unsafe { libc::kill(child, libc::SIGKILL) };
            child::wait(child);
        }
    }
}

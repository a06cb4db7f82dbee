//! Two CPUs: one on which sections are aborted, and one to move to.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use anyhow::{Result, ensure};
use thiscpu::__test_support;
use thiscpu_test_support::{cpus, memory};

#[derive(Debug)]
pub(crate) struct Cpus {
    both: [usize; 2],
    /// The index of the driven thread's CPU.
    now: AtomicUsize,
}

impl Cpus {
    /// Finds two CPUs that this process may use, and moves to the first one.
    pub(crate) fn find() -> Result<Cpus> {
        let allowed = cpus::allowed();
        ensure!(
            allowed.len() >= 2,
            "moves to another CPU need two, but this process may use only one"
        );
        let cpus = Cpus { both: [allowed[0], allowed[1]], now: AtomicUsize::new(1) };
        ensure!(cpus.move_on(), "cannot move to CPU {}", cpus.both[0]);
        Ok(cpus)
    }

    /// Moves the calling thread, and threads that it starts later, to the other CPU.
    ///
    /// Returns whether the kernel did so.
    pub(crate) fn move_on(&self) -> bool {
        let other = 1 - self.now.load(SeqCst);
        self.now.store(other, SeqCst);
        __test_support::run_on(self.both[other])
    }
}

/// Notices that the calling thread lost its CPU at an unplanned moment.
///
/// That aborts sections too, so an operation may rightly have used the shared lane.
#[derive(Debug)]
pub(crate) struct SwitchWatch {
    seen: Cell<i64>,
    switched: Cell<bool>,
}

impl SwitchWatch {
    pub(crate) fn new() -> SwitchWatch {
        SwitchWatch { seen: Cell::new(switches()), switched: Cell::new(false) }
    }

    /// Runs `work`, which may lose the CPU as planned.
    pub(crate) fn except<R>(&self, work: impl FnOnce() -> R) -> R {
        self.switched();
        let result = work();
        self.seen.set(switches());
        result
    }

    /// Returns whether the thread lost its CPU at an unplanned moment so far.
    pub(crate) fn switched(&self) -> bool {
        self.switched.set(self.switched.get() || switches() != self.seen.get());
        self.switched.get()
    }
}

/// Returns how often the calling thread has lost its CPU or given it up.
fn switches() -> i64 {
    let usage = memory::usage(libc::RUSAGE_THREAD);
    usage.ru_nvcsw + usage.ru_nivcsw
}

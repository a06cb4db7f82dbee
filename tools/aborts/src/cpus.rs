//! Two CPUs: the one that sections are aborted on, and one to move to.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use anyhow::{Result, ensure};
use thiscpu::__test_support;

/// Words of an affinity mask: enough for the 8,192 CPUs of the largest kernel configuration.
const MASK_WORDS: usize = 128;

#[derive(Debug)]
pub(crate) struct Cpus {
    both: [usize; 2],
    /// Which of them the driven thread is on.
    now: AtomicUsize,
}

impl Cpus {
    /// Goes to the first of the first two that this process may run on.
    pub(crate) fn find() -> Result<Cpus> {
        let mut mask = [0_u64; MASK_WORDS];
        // SAFETY: the mask is writable, aligned at least as `cpu_set_t` is, and as long as said.
        unsafe { libc::sched_getaffinity(0, size_of_val(&mask), mask.as_mut_ptr().cast()) };
        let allowed: Vec<_> =
            (0..MASK_WORDS * 64).filter(|cpu| mask[cpu / 64] & (1 << (cpu % 64)) != 0).collect();
        ensure!(
            allowed.len() >= 2,
            "moves to another CPU are part of this and there is only one here; run it on two or more"
        );
        let cpus = Cpus { both: [allowed[0], allowed[1]], now: AtomicUsize::new(1) };
        ensure!(cpus.move_on(), "CPU {} cannot be run on", cpus.both[0]);
        Ok(cpus)
    }

    /// Moves the calling thread to the other one; whether that worked. Threads that it starts begin
    /// there too.
    pub(crate) fn move_on(&self) -> bool {
        let other = 1 - self.now.load(SeqCst);
        self.now.store(other, SeqCst);
        __test_support::run_on(self.both[other])
    }
}

/// Notices when the calling thread lost its CPU at a moment of the kernel's own, which aborts sections
/// too: then an op may rightly have come to the slow lane.
#[derive(Debug)]
pub(crate) struct Watch {
    seen: Cell<i64>,
    lost: Cell<bool>,
}

impl Watch {
    pub(crate) fn new() -> Watch {
        Watch { seen: Cell::new(switches()), lost: Cell::new(false) }
    }

    /// Runs what may well lose the CPU.
    pub(crate) fn except<R>(&self, work: impl FnOnce() -> R) -> R {
        self.lost();
        let result = work();
        self.seen.set(switches());
        result
    }

    pub(crate) fn lost(&self) -> bool {
        self.lost.set(self.lost.get() || switches() != self.seen.get());
        self.lost.get()
    }
}

/// How often the calling thread has lost its CPU, or given it up.
fn switches() -> i64 {
    // SAFETY: all zeroes is a valid rusage, which getrusage fills in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage
    };
    usage.ru_nvcsw + usage.ru_nivcsw
}

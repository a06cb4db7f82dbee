//! Atomics in shared memory, and the library's counters.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use anyhow::Result;

use super::{Contender, PROCESSES_MAX, SharedMemory, Zeroed};
use crate::contenders::Padded;

// SAFETY: an atomic of zeros is the number 0, and needs no drop.
unsafe impl Zeroed for Padded<AtomicI64> {}
// SAFETY: atomics of zeros are the number 0, and need no drop.
unsafe impl Zeroed for [Padded<AtomicI64>; PROCESSES_MAX] {}

/// `atomic`: one word in shared memory. It is as fast as its cache line moves between CPUs.
pub(crate) struct Atomic(SharedMemory<Padded<AtomicI64>>);

impl Contender for Atomic {
    fn try_new() -> Result<Self> {
        SharedMemory::zeroed().map(Self)
    }

    #[inline(always)]
    fn add(&self, _process: usize) {
        // Relaxed: the word guards no other data.
        self.0.fetch_add(1, Relaxed);
    }

    #[inline(always)]
    fn sum(&self) -> i64 {
        // Relaxed: the word's own modification order makes the value exact.
        self.0.load(Relaxed)
    }
}

/// `uncontended`: a word in shared memory for each process. Its sums are not of one instant.
pub(crate) struct Uncontended(SharedMemory<[Padded<AtomicI64>; PROCESSES_MAX]>);

impl Contender for Uncontended {
    fn try_new() -> Result<Self> {
        SharedMemory::zeroed().map(Self)
    }

    #[inline(always)]
    fn add(&self, process: usize) {
        // Relaxed: the word guards no other data.
        self.0[process % PROCESSES_MAX].fetch_add(1, Relaxed);
    }

    fn sum(&self) -> i64 {
        // Relaxed: a sum at the end is ordered by the ends of the processes.
        self.0.iter().map(|word| word.load(Relaxed)).sum()
    }
}

/// `thiscpu`: a counter in a segment without a name.
pub(crate) struct ThisCpu(::thiscpu::SharedCounter);

impl Contender for ThisCpu {
    fn try_new() -> Result<Self> {
        Ok(Self(::thiscpu::Segment::anonymous()?.counter("adds")?))
    }

    #[inline(always)]
    fn add(&self, _process: usize) {
        self.0.add(1);
    }

    #[inline(always)]
    fn sum(&self) -> i64 {
        self.0.sum()
    }
}

/// `thiscpu-local`: a counter of each process, which shares nothing.
pub(crate) struct ThisCpuLocal(::thiscpu::Counter);

impl Contender for ThisCpuLocal {
    fn try_new() -> Result<Self> {
        Ok(Self(::thiscpu::Counter::new()))
    }

    #[inline(always)]
    fn add(&self, _process: usize) {
        self.0.add(1);
    }

    fn sum(&self) -> i64 {
        0
    }

    fn own(&self) -> i64 {
        self.0.sum()
    }
}

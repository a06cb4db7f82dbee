//! The designs of a few lines: one shared word, the kernel's counter, a crate's, and the library's.

use std::{
    cmp::Ordering,
    sync::atomic::{AtomicI64, Ordering::Relaxed},
};

use contatori::counters::{Observable, signed::Signed};

use super::Contender;
use crate::contenders::{lanes::Batch, percpu_counter::PercpuCounter};

/// `atomic`: one shared word. Always exact, and as fast as its cache line moves between CPUs.
pub(crate) struct Atomic(AtomicI64);

impl Contender for Atomic {
    fn try_new() -> anyhow::Result<Self> {
        Ok(Self(AtomicI64::new(0)))
    }

    #[inline(always)]
    fn add(&self, n: i64) {
        // Relaxed: the word guards no other data.
        self.0.fetch_add(n, Relaxed);
    }

    #[inline(always)]
    fn sum(&self) -> i64 {
        // Relaxed: the word's own modification order makes the value exact.
        self.0.load(Relaxed)
    }
}

/// `spinlock-fold`, design A: the kernel's counter, with the kernel's batch.
pub(crate) struct SpinlockFold {
    counter: PercpuCounter,
    batch: i64,
}

impl Contender for SpinlockFold {
    fn try_new() -> anyhow::Result<Self> {
        Ok(Self { counter: PercpuCounter::new(0), batch: Batch::default().size })
    }

    #[inline(always)]
    fn add(&self, n: i64) {
        self.counter.add(n, self.batch);
    }

    fn sum(&self) -> i64 {
        self.counter.sum()
    }

    #[inline]
    fn compare(&self, limit: i64) -> Ordering {
        self.counter.compare(limit, self.batch).0
    }
}

/// `striped`: the contatori crate's signed counter, a padded atomic for each thread slot.
///
/// A thread keeps the slot that it gets at first use. The sum adds the slots up while threads
/// continue to add, and is not guaranteed to be a snapshot. The crate has no comparison, so a
/// comparison here is a sum.
pub(crate) struct Striped(Signed);

impl Contender for Striped {
    fn try_new() -> anyhow::Result<Self> {
        Ok(Self(Signed::new()))
    }

    #[inline(always)]
    fn add(&self, n: i64) {
        self.0.add(n as isize);
    }

    fn sum(&self) -> i64 {
        self.0.value().as_i64()
    }
}

/// `thiscpu`: the library's counter, used as programs use it.
pub(crate) struct ThisCpu(::thiscpu::Counter);

impl Contender for ThisCpu {
    fn try_new() -> anyhow::Result<Self> {
        Ok(Self(::thiscpu::Counter::new()))
    }

    #[inline(always)]
    fn add(&self, n: i64) {
        self.0.add(n);
    }

    #[inline(always)]
    fn sum(&self) -> i64 {
        self.0.sum()
    }

    #[inline(always)]
    fn compare(&self, limit: i64) -> Ordering {
        self.0.compare(limit).ordering
    }

    fn leave_lanes() {
        ::thiscpu::__test_support::leave_lanes();
    }
}

/// `none`: a counter that does not count, to time a workload without accounting.
pub(crate) struct Nothing;

impl Contender for Nothing {
    fn try_new() -> anyhow::Result<Self> {
        Ok(Self)
    }

    #[inline(always)]
    fn add(&self, _n: i64) {}

    #[inline(always)]
    fn sum(&self) -> i64 {
        0
    }
}

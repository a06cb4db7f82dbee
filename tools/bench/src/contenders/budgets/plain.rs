//! The budgets of a few lines: one shared word, a crate's semaphore, and the library's budget.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use super::Contender;

/// `atomic-cas`: one shared word. Always right, as fast as its cache line moves between CPUs.
pub(crate) struct AtomicCas(AtomicU64);

impl Contender for AtomicCas {
    const IS_RIGHT: bool = true;

    fn new(limit: u64) -> Self {
        Self(AtomicU64::new(limit))
    }

    #[inline(always)]
    fn try_acquire(&self, n: u64) -> bool {
        // Acquire: pairs with the Release in `release`, made by the thread that freed the units.
        self.0.fetch_update(Acquire, Relaxed, |free| free.checked_sub(n)).is_ok()
    }

    #[inline(always)]
    fn release(&self, n: u64) {
        // Release: pairs with the Acquire in `try_acquire`.
        self.0.fetch_add(n, Release);
    }

    fn available(&self) -> i64 {
        // Relaxed: no other thread uses the budget meanwhile.
        self.0.load(Relaxed) as i64
    }
}

/// `semaphore`: the tokio crate's semaphore, acquired without waiting.
pub(crate) struct Semaphore(tokio::sync::Semaphore);

impl Contender for Semaphore {
    const IS_RIGHT: bool = true;

    fn new(limit: u64) -> Self {
        let permits = usize::try_from(limit).unwrap_or(usize::MAX);
        Self(tokio::sync::Semaphore::new(permits.min(tokio::sync::Semaphore::MAX_PERMITS)))
    }

    #[inline(always)]
    fn try_acquire(&self, n: u64) -> bool {
        let permits = u32::try_from(n).unwrap_or(u32::MAX);
        self.0.try_acquire_many(permits).map(|permits| permits.forget()).is_ok()
    }

    #[inline(always)]
    fn release(&self, n: u64) {
        self.0.add_permits(n as usize);
    }

    fn available(&self) -> i64 {
        self.0.available_permits() as i64
    }
}

/// `thiscpu`: the library's budget, used as programs use it.
pub(crate) struct ThisCpu(::thiscpu::Budget);

impl Contender for ThisCpu {
    const IS_RIGHT: bool = true;

    fn new(limit: u64) -> Self {
        Self(::thiscpu::Budget::new(limit))
    }

    #[inline(always)]
    fn try_acquire(&self, n: u64) -> bool {
        self.0.try_acquire(n).is_ok()
    }

    #[inline(always)]
    fn release(&self, n: u64) {
        self.0.release(n);
    }

    fn available(&self) -> i64 {
        self.0.available() as i64
    }

    fn recalls(&self) -> Option<u64> {
        Some(::thiscpu::__test_support::recalls(&self.0))
    }
}

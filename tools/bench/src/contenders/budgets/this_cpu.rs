//! `thiscpu`: the library's budget, used as programs use it.

use super::Contender;

/// The library's own budget.
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

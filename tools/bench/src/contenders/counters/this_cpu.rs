//! `thiscpu`: the library's counter, used as programs use it.

use std::cmp::Ordering;

use super::Contender;

/// The library's own counter.
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

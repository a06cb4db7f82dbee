//! `none`: a counter that does not count, to time a workload without accounting.

use std::cmp::Ordering;

use super::Contender;

/// A counter whose adds do nothing.
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

    #[inline(always)]
    fn compare(&self, limit: i64) -> Ordering {
        0.cmp(&limit)
    }
}

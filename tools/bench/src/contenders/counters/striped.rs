//! `striped`: the contatori crate's signed counter, a padded atomic for each of its thread slots.
//!
//! A thread keeps the slot it was given at first use. The sum adds the slots up while threads go
//! on, and makes no promise to be a snapshot. There is no comparison, so one is a sum.

use std::cmp::Ordering;

use contatori::counters::{Observable, signed::Signed};

use super::Contender;

/// The crate's own counter.
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

    fn compare(&self, limit: i64) -> Ordering {
        self.sum().cmp(&limit)
    }
}

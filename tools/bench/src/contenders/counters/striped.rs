//! `striped`: the contatori crate's signed counter, a padded atomic for each of its thread slots.
//!
//! A thread keeps the slot that it gets at first use. The sum adds the slots up while threads
//! continue to add, and is not guaranteed to be a snapshot. The crate has no comparison, so a
//! comparison here is a sum.

use std::cmp::Ordering;

use contatori::counters::{Observable, signed::Signed};

use super::Contender;

/// The crate's counter.
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

//! `atomic`: one shared word. Always exact, and as fast as its cache line moves between CPUs.

use std::{
    cmp::Ordering,
    sync::atomic::{AtomicI64, Ordering::Relaxed},
};

use super::Contender;

/// The counter's word.
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

    #[inline(always)]
    fn compare(&self, limit: i64) -> Ordering {
        self.sum().cmp(&limit)
    }
}

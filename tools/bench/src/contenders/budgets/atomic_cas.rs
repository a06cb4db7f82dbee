//! `atomic-cas`: one shared word. Always right, and as fast as its cache line moves between CPUs.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use super::Contender;

/// The free units.
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

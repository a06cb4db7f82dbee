//! The log of a transfer between accounts, for a child that is forked in the middle of it.

use crate::sys::atomic::{
    AtomicI64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

#[derive(Default)]
pub(super) struct TransferLog {
    /// The key of the first account; 0 if there is no transfer.
    from: AtomicUsize,
    to: AtomicUsize,
    n: AtomicI64,
}

impl TransferLog {
    /// Records a transfer.
    ///
    /// Release: pairs with the Acquire in `unfinished`. A child that finds the first key finds the
    /// rest, and both accounts' transfers begun.
    pub(super) fn begin(&self, from: u64, to: u64, n: i64) {
        self.n.store(n, Relaxed);
        self.to.store(to as usize, Relaxed);
        self.from.store(from as usize, Release);
    }

    pub(super) fn forget(&self) {
        self.from.store(0, Release);
    }

    /// Returns both keys and the amount of a transfer that has not ended.
    pub(super) fn unfinished(&self) -> Option<(u64, u64, i64)> {
        // Acquire: pairs with the Release in `begin`; the rest of the log is visible.
        let from = self.from.load(Acquire);
        (from != 0).then(|| (from as u64, self.to.load(Relaxed) as u64, self.n.load(Relaxed)))
    }
}

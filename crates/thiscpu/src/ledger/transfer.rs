//! Moves of units between accounts.

use super::Shared;
use super::record::{ANOTHER_ACCOUNT, Record, Transfer};
use crate::sys::atomic::{
    AtomicI64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

impl<const N: usize> Shared<N> {
    /// Moves units from one account to another.
    pub(super) fn transfer(&self, from: Record<N>, to: Record<N>, index: usize, n: i64) {
        self.recover_after_fork();
        let _moving = self.transfers.lock();
        // The only place that takes two, and one at a time.
        let (_from, _to) = (from.lock().lock(), to.lock().lock());
        // One look for both: a report that begins in between has this whole, or nothing of it.
        let stage = self.snapshot_state.stage();
        self.finish_capture(from, stage);
        self.finish_capture(to, stage);
        self.capture_change(from, stage, index, n.wrapping_neg());
        self.capture_change(to, stage, index, n);
        let [out, into] = [from, to].map(|record| record.begin_transfer(index, ANOTHER_ACCOUNT));
        self.transfer_log.begin(from.key(), to.key(), n);
        from.transfer_in(out, n.wrapping_neg());
        to.transfer_in(into, n);
        self.transfer_log.forget();
        from.end_transfers();
        to.end_transfers();
    }
}

/// A move between accounts that is under way, for a child that is forked in the middle of it.
pub(super) struct TransferLog {
    /// The keys; 0 if there is no move.
    from: AtomicUsize,
    to: AtomicUsize,
    n: AtomicI64,
}

impl TransferLog {
    pub(super) const fn new() -> TransferLog {
        TransferLog { from: AtomicUsize::new(0), to: AtomicUsize::new(0), n: AtomicI64::new(0) }
    }

    /// Release: whoever finds it in a child finds the rest, and both transfers begun.
    fn begin(&self, from: u64, to: u64, n: i64) {
        self.n.store(n, Relaxed);
        self.to.store(to as usize, Relaxed);
        self.from.store(from as usize, Release);
    }

    fn forget(&self) {
        self.from.store(0, Release);
    }

    /// Does what is left of a move that a fork cut in two.
    pub(super) fn end<const N: usize>(&self) {
        let from = self.from.load(Acquire);
        if from == 0 {
            return;
        }
        let n = self.n.load(Relaxed);
        for (key, n) in [(from, n.wrapping_neg()), (self.to.load(Relaxed), n)] {
            // SAFETY: the keys of two records of this ledger.
            let record = unsafe { Record::<N>::of_key(key as u64) };
            let is_left = |transfer: &Transfer| !record.is_done(*transfer);
            if let Some(transfer) = record.transfer().filter(is_left) {
                record.transfer_in(transfer, n);
            }
            record.end_transfers();
        }
        self.forget();
    }
}

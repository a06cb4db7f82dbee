//! Transfers between accounts.

use super::core::LedgerCore;
use super::record::{ANOTHER_ACCOUNT, Record};

impl<const N: usize> LedgerCore<N> {
    /// Moves `n` of counter `index` from one account to another, at one instant.
    pub(super) fn transfer(&self, from: Record<N>, to: Record<N>, index: usize, n: i64) {
        self.recover_after_fork();
        let _moving = self.transfers.lock();
        // Only this function holds two account locks, and the `transfers` lock admits one thread at
        // a time.
        let (_from, _to) = (from.lock().lock(), to.lock().lock());
        // One load for both accounts: a snapshot has the whole transfer, or nothing of it.
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

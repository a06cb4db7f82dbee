//! Recovery after a fork: ends the operations that threads of the parent had begun.

use super::cache::{self, EVICTING, Way};
use super::core::LedgerCore;
use super::record::{Record, Transfer};
use super::snapshot_state::NONE;
use crate::sys::Host;
use crate::sys::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sys::machine::Machine as _;
use crate::sys::startup;

impl<const N: usize> LedgerCore<N> {
    /// Recovers after a fork, unless this process has done so.
    ///
    /// Every operation except a charge in a lane calls it first.
    pub(super) fn recover_after_fork(&self) {
        // This precedes the first lock: until the tier is chosen a child cannot be told from its
        // parent.
        startup::tier_or_panic();
        // Acquire: pairs with the Release at the end of this function.
        let is_recovered = || self.recovered.load(Acquire) == Host::generation();
        if is_recovered() {
            return;
        }
        let _recovering = self.registry.lock();
        if is_recovered() {
            return;
        }
        // The next lock holder of each account that the snapshot captured ends the capture.
        self.snapshot_state.advance(NONE);
        // Threads of the parent visit nothing in this process.
        self.visitors.store(0, Relaxed);
        self.recover_chunks();
        self.finish_transfer();
        if let Some(item) = self.item() {
            let evicting =
                || cache::all_ways(item).filter(|way: &Way<N>| way.key() & EVICTING != 0);
            // All of these first. Several ways of an account may be marked for eviction, and
            // flushing one of them forgets the transfer that another had begun.
            evicting().for_each(|way| self.finish_way_transfer(way));
            evicting().for_each(|way| self.recover_way(way));
        }
        // Release: pairs with the Acquire in `is_recovered`; the recovered state is visible.
        self.recovered.store(Host::generation(), Release);
    }

    /// Clears a way's counter that a fork left although the account has received its amount.
    fn finish_way_transfer(&self, way: Way<N>) {
        // SAFETY: a key in a lane is that of a record of this ledger, which `self` borrows.
        let record = unsafe { Record::<N>::of_key(way.key() & !EVICTING) };
        let begun = record.transfer().filter(|transfer| transfer.way_id == way.way_id());
        if let Some(transfer) = begun.filter(|&transfer| record.is_done(transfer)) {
            way.counter(transfer.index).store(0, Relaxed);
        }
    }

    /// Flushes and frees a way that is marked for eviction.
    fn recover_way(&self, way: Way<N>) {
        // SAFETY: a key in a lane is that of a record of this ledger, which `self` borrows.
        let record = unsafe { Record::<N>::of_key(way.key() & !EVICTING) };
        let _guard = record.lock().lock();
        self.flush_way(record, way);
        self.free_way(record, way);
    }

    /// Finishes a transfer between accounts that a fork interrupted.
    fn finish_transfer(&self) {
        let Some((from, to, n)) = self.transfer_log.unfinished() else { return };
        for (key, n) in [(from, n.wrapping_neg()), (to, n)] {
            // SAFETY: the log holds keys of two records of this ledger, which `self` borrows.
            let record = unsafe { Record::<N>::of_key(key) };
            let is_left = |transfer: &Transfer| !record.is_done(*transfer);
            if let Some(transfer) = record.transfer().filter(is_left) {
                record.transfer_in(transfer, n);
            }
            record.end_transfers();
        }
        self.transfer_log.forget();
    }
}

#[cfg(all(test, not(thiscpu_model)))]
mod tests {
    use super::*;
    use crate::Ledger;

    /// Sets up the state that a fork in the middle of a `sync` leaves.
    ///
    /// The amount of the second way has been added to the account, and is still in the way.
    #[test]
    fn recovery_finishes_transfer_of_any_way() {
        let ledger: Ledger<2> = Ledger::new();
        let [account, other] = [0; 2].map(|_| ledger.open());
        // Makes sure that a lane exists.
        other.charge(0, 1);
        let (shared, record) = (&*ledger.0, account.0);
        if shared.item().is_none() || crate::lanes::table::in_use() == 0 {
            return;
        }
        let set = shared.set_of(record);
        let ways: Vec<Way<2>> =
            Way::in_all_lanes(set).filter(|way| way.key() == 0).take(2).collect();
        for way in &ways {
            way.counter(1).store(64, Relaxed);
            way.set_key(record.key() | EVICTING);
            record.set_way_count(record.way_count() + 1);
        }
        let transfer = record.begin_transfer(1, ways[1].way_id());
        record.transfer_in(transfer, 64);
        shared.recovered.store(0, Relaxed);
        assert_eq!(account.snapshot(), [0, 2 * 64]);
        assert_eq!((account.read(1), record.way_count()), (2 * 64, 0));
    }
}

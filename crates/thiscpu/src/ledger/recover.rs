//! What the first use after a fork ends.

use super::cache::{self, EVICTING, Way};
use super::core::LedgerCore;
use super::record::{Record, Transfer};
use crate::sys::Host;
use crate::sys::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sys::machine::Machine as _;
use crate::sys::startup;

impl<const N: usize> LedgerCore<N> {
    /// Ends what a fork cut in two, before anything rests on what is in lanes.
    pub(super) fn recover_after_fork(&self) {
        // Before the first lock: until then a child cannot be told from its parent.
        startup::tier_or_panic();
        // Acquire: pairs with the Release below.
        let is_recovered = || self.recovered.load(Acquire) == Host::generation();
        if is_recovered() {
            return;
        }
        let _recovering = self.registry.lock();
        if is_recovered() {
            return;
        }
        // Accounts that it has noted are released by whoever comes to them.
        self.snapshot_state.abandon();
        self.finish_transfer();
        if let Some(item) = self.item() {
            let evicting =
                || cache::all_ways(item).filter(|way: &Way<N>| way.key() & EVICTING != 0);
            // All of these first: an account may be leaving several ways, and the transfer that was begun from one of
            // them is forgotten with the next.
            evicting().for_each(|way| self.finish_way_transfer(way));
            evicting().for_each(|way| self.recover_way(way));
        }
        self.recovered.store(Host::generation(), Release);
    }

    /// Takes from a way that is leaving what its account has already, if a fork came in between.
    fn finish_way_transfer(&self, way: Way<N>) {
        // SAFETY: a key leads to a record of this ledger.
        let record = unsafe { Record::<N>::of_key(way.key() & !EVICTING) };
        let begun = record.transfer().filter(|transfer| transfer.way_id == way.way_id());
        if let Some(transfer) = begun.filter(|&transfer| record.is_done(transfer)) {
            way.counter(transfer.index).store(0, Relaxed);
        }
    }

    /// Empties a way that is leaving.
    fn recover_way(&self, way: Way<N>) {
        // SAFETY: as above.
        let record = unsafe { Record::<N>::of_key(way.key() & !EVICTING) };
        let _guard = record.lock().lock();
        self.flush_way(record, way);
        self.free_way(record, way);
    }

    /// Does what is left of a move that a fork cut in two.
    fn finish_transfer(&self) {
        let Some((from, to, n)) = self.transfer_log.unfinished() else { return };
        for (key, n) in [(from, n.wrapping_neg()), (to, n)] {
            // SAFETY: the keys of two records of this ledger.
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

    /// What a fork leaves of a sync: the units of the second way have been added, and are still in it.
    #[test]
    fn a_child_ends_the_transfer_of_any_way() {
        let ledger: Ledger<2> = Ledger::new();
        let [account, other] = [0; 2].map(|_| ledger.open());
        // So that there is a lane.
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

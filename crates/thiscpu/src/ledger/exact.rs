//! Exact values: an account's, at one instant, and those of all accounts.
//!
//! Under an account's lock its gate is closed and a fence passed. From then on no section charges it, neither in a lane
//! nor its own words, and who charges without a section waits for the lock: it holds still, and its value is what
//! its words and its ways come to. Others are not held up.
//!
//! A report does that with all accounts, and one fence.

use super::cache::{LEAVING, Way};
use super::record::{Record, Transfer};
use super::{Account, AccountId, Shared};
use crate::sys::atomic::{
    AtomicI64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::sys::fence;

impl<const N: usize> Shared<N> {
    /// What an account comes to while it holds still.
    fn total(&self, record: &Record<N>) -> [i64; N] {
        let mut total = core::array::from_fn(|index| record.value(index));
        if record.blocks() > 0 {
            let ways =
                Way::in_all_lanes(self.set_of(record)).filter(|way| way.key() == record.key());
            for way in ways {
                for (index, total) in total.iter_mut().enumerate() {
                    // Relaxed: the fence makes visible what sections committed.
                    *total = total.wrapping_add(way.counter(index).load(Relaxed));
                }
            }
        }
        total
    }

    /// Where there is no cache all charges are under locks.
    fn fence(&self) {
        if self.item().is_some() {
            fence::fence();
        }
    }

    /// An account's counters at one instant.
    pub(super) fn snapshot(&self, record: &Record<N>) -> [i64; N] {
        self.heal();
        let _guard = record.lock.lock();
        self.close_gate(record);
        self.fence();
        let total = self.total(record);
        self.reopen(record);
        total
    }

    /// All open accounts at one instant.
    pub(super) fn report(&self) -> Vec<(AccountId, [i64; N])> {
        self.heal();
        let mut report = Vec::with_capacity(self.open.load(Relaxed));
        let _registry = self.registry.lock();
        for record in self.chunks().flat_map(|chunk| chunk.records()) {
            core::mem::forget(record.lock.lock());
            if record.is_open() {
                self.close_gate(record);
            }
        }
        self.fence();
        for record in self.chunks().flat_map(|chunk| chunk.records()) {
            // SAFETY: taken above, by this thread.
            let _guard = unsafe { record.lock.held() };
            if record.is_open() {
                report.push((AccountId::of(record), self.total(record)));
                self.reopen(record);
            }
        }
        report
    }

    /// Adds what lanes hold to the accounts it belongs to.
    pub(super) fn sync(&self) {
        self.heal();
        let Some(item) = self.item() else { return };
        for set in 0..super::cache::SETS {
            let set = super::cache::set_at(item, set, N);
            for way in Way::in_all_lanes(set) {
                self.sync_way(way);
            }
        }
    }

    fn sync_way(&self, way: Way) {
        let key = way.key();
        if key == 0 || (0..N).all(|index| way.counter(index).load(Relaxed) == 0) {
            return;
        }
        // SAFETY: the key was found in a lane of this ledger.
        let record = unsafe { Record::<N>::of_key(key) };
        let _guard = record.lock.lock();
        // Who has the lock decides who is in the way.
        if way.key() != record.key() || !record.is_open() {
            return;
        }
        self.close_gate(record);
        fence::fence();
        record.end_transfers();
        way.set_key(record.key() | LEAVING);
        self.fold(record, way);
        way.set_key(record.key());
        self.reopen(record);
    }

    /// Moves units from one account to another.
    pub(super) fn transfer(&self, from: &Record<N>, to: &Record<N>, index: usize, n: i64) {
        self.heal();
        let _moving = self.moves.lock();
        let number = |record: &Record<N>| record.chunk().number(record);
        // In the order of reports.
        let (first, second) = if number(from) < number(to) { (from, to) } else { (to, from) };
        let _first = first.lock.lock();
        let _second = second.lock.lock();
        let [out, into] = [from, to].map(|record| record.begin_transfer(index));
        self.log.begin(from.key(), to.key(), n);
        from.transfer_in(out, n.wrapping_neg());
        to.transfer_in(into, n);
        self.log.forget();
        from.end_transfers();
        to.end_transfers();
    }
}

/// A move between accounts that is under way, for a child that is forked in the middle of it.
pub(super) struct Log {
    /// The keys; 0 if there is no move.
    from: AtomicUsize,
    to: AtomicUsize,
    n: AtomicI64,
}

impl Log {
    pub(super) const fn new() -> Log {
        Log { from: AtomicUsize::new(0), to: AtomicUsize::new(0), n: AtomicI64::new(0) }
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

impl<const N: usize> Account<N> {
    pub(super) fn sum_of(&self, index: usize) -> i64 {
        let (record, shared) = (self.record(), self.shared());
        shared.heal();
        let guard = record.lock.lock();
        // In no lane, and nobody can put it into one meanwhile: its word is all there is.
        if record.blocks() == 0 {
            return record.value(index);
        }
        drop(guard);
        shared.snapshot(record)[index]
    }
}

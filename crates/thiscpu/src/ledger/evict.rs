//! How an account enters a lane, and how it leaves it.
//!
//! Both need the account's lock, and only try to take it: a charge never waits for another thread's
//! exact read.
//!
//! 1. A section on the lane sets `EVICTING` in the key. From then on no section charges the way. It
//!    belongs to the holder of the account's lock.
//! 2. The way's counters are added to the account's words, by one transfer each.
//! 3. The key becomes 0: the way is free, and its counters are 0.
//! 4. A section on a lane stores another account's key in a free way.

use super::cache::{EVICTING, WAYS, Way};
use super::core::LedgerCore;
use super::record::Record;
use crate::lanes::{current, table::READY_BIT};
use crate::section::{Outcome, Processor, WordSections};
use crate::sys::atomic::{
    Ordering::{Acquire, Relaxed},
    fence as memory_fence,
};

/// Replaces a key in a set of this thread's lane. Not inlined: there is one copy of it.
#[inline(never)]
fn replace(set: usize, way: usize, old: u64, new: u64) -> bool {
    let item = set + 8 * way + READY_BIT;
    // SAFETY: the set is in the item of a ledger, and the caller of this function borrows that
    // ledger.
    let (outcome, _) = unsafe { <Processor as WordSections<u64>>::cmpxchg(item, old, new) };
    outcome == Outcome::Committed
}

impl<const N: usize> LedgerCore<N> {
    /// Returns the way of the set in this thread's lane that holds `key`; 0 finds a free way.
    pub(super) fn find(&self, set: usize, entry: usize, key: u64) -> Option<usize> {
        (0..WAYS).find(|&way| Way::<N>::at_entry(set, entry, way).key() == key)
    }

    /// Installs an account in this thread's lane; `by_force` may replace an idle account.
    #[cold]
    pub(super) fn install(&self, record: Record<N>, by_force: bool) {
        let (set, entry) = (self.set_of(record), current::entry());
        if entry == 0 {
            return;
        }
        let Some(_guard) = self.try_lock_account(record) else { return };
        if self.find(set, entry, record.key()).is_some() {
            return;
        }
        let idle = |&way: &usize| Way::<N>::at_entry(set, entry, way).is_idle();
        let evict = |way: &usize| idle(way) && self.try_evict(set, entry, *way);
        let free = self.find(set, entry, 0);
        if let Some(way) = free.or_else(|| (0..WAYS).filter(|_| by_force).find(evict)) {
            self.occupy(record, set, way);
        }
    }

    /// Flushes an account's full way in this thread's lane, and installs the account again.
    #[cold]
    pub(super) fn flush_and_keep(&self, record: Record<N>) {
        let (set, entry) = (self.set_of(record), current::entry());
        if entry == 0 {
            return;
        }
        let Some(_guard) = self.try_lock_account(record) else { return };
        if let Some(way) = self.find(set, entry, record.key())
            && self.evict_way(record, set, entry, way)
        {
            self.occupy(record, set, way);
        }
    }

    /// Frees a way of this thread's lane, unless another thread holds its account's lock.
    fn try_evict(&self, set: usize, entry: usize, way: usize) -> bool {
        let _visitor = self.visit();
        let key = Way::<N>::at_entry(set, entry, way).key();
        if key == 0 || key & EVICTING != 0 {
            return false;
        }
        // SAFETY: a key in a lane is that of a record of this ledger, which `self` borrows.
        let record = unsafe { Record::<N>::of_key(key) };
        let Some(_guard) = record.lock().try_lock() else { return false };
        self.evict_way(record, set, entry, way)
    }

    /// Flushes and frees a way of this thread's lane; returns whether it could.
    ///
    /// The caller holds the account's lock.
    fn evict_way(&self, record: Record<N>, set: usize, entry: usize, way: usize) -> bool {
        let evicting = record.key() | EVICTING;
        if !replace(set, way, record.key(), evicting) {
            return false;
        }
        // The section ran on the lane that this thread was on then, maybe another than the one it
        // read. An account whose lock is held for an eviction has only one way marked at a time.
        let there = Way::<N>::at_entry(set, entry, way);
        let there = match there.key() == evicting {
            true => there,
            false => Way::<N>::in_all_lanes(set)
                .find(|way| way.key() == evicting)
                .expect("a way that is leaving is in some lane"),
        };
        self.flush_way(record, there);
        self.free_way(record, there);
        true
    }

    /// Adds the content of a marked way to its account. The caller holds the account's lock.
    pub(super) fn flush_way(&self, record: Record<N>, way: Way<N>) {
        for index in 0..N {
            // Relaxed: sections on the way's lane stored it before its key was marked, or a fence
            // has passed.
            let n = way.counter(index).load(Relaxed);
            if n != 0 {
                let transfer = record.begin_transfer(index, way.way_id());
                record.transfer_in(transfer, n);
                way.counter(index).store(0, Relaxed);
            }
        }
        record.end_transfers();
    }

    /// Frees a way that is marked and empty. The caller holds the account's lock.
    pub(super) fn free_way(&self, record: Record<N>, way: Way<N>) {
        way.set_key(0);
        record.set_way_count(record.way_count() - 1);
        if record.way_count() == 0 && !record.is_open() {
            self.push_free(record);
        }
    }

    /// Frees the ways of an account that is closed. The caller holds its lock.
    ///
    /// No handle is left, so no section charges the account any more, and no fence is necessary.
    pub(super) fn discard_ways(&self, record: Record<N>) {
        let holds_account = |way: &Way<N>| way.key() & !EVICTING == record.key();
        for way in Way::in_all_lanes(self.set_of(record)).filter(holds_account) {
            (0..N).for_each(|index| way.counter(index).store(0, Relaxed));
            self.free_way(record, way);
        }
    }

    /// Stores an account's key in a free way of this thread's lane. The caller holds the lock.
    fn occupy(&self, record: Record<N>, set: usize, way: usize) {
        // Counted first: a fork in between leaves a record that is never freed, instead of one that
        // is freed too early.
        record.set_way_count(record.way_count() + 1);
        match replace(set, way, 0, record.key()) {
            // Acquire: pairs with the Release in `set_key` of the 0 that was replaced. Sections
            // that charge the way come after this fence, or run on this CPU after another thread,
            // and find its counters 0.
            true => memory_fence(Acquire),
            false => record.set_way_count(record.way_count() - 1),
        }
    }
}

//! How an account gets into a lane, and how it leaves it.
//!
//! Both take the account's lock, which they only try: a charge never waits for somebody else's sum.
//!
//! 1. A section on the lane marks the key as leaving. From then on no section charges the way, and it belongs to
//!    whoever holds the account's lock.
//! 2. Its counters are added to the account's words, one transfer each.
//! 3. The key becomes 0: the way is free, and its counters are 0.
//! 4. A section on a lane puts another account's key into a free way.

use super::cache::{EVICTING, WAYS, Way};
use super::core::LedgerCore;
use super::record::Record;
use crate::lanes::{current, table::READY_BIT};
use crate::section::{Outcome, Processor, WordSections};
use crate::sys::atomic::{
    Ordering::{Acquire, Relaxed},
    fence as memory_fence,
};

/// Replaces a key in a set of the lane that this thread is on now. One copy of the section.
#[inline(never)]
fn replace(set: usize, way: usize, old: u64, new: u64) -> bool {
    let item = set + 8 * way + READY_BIT;
    // SAFETY: the set is in the item of a ledger that its caller has a handle to.
    let (outcome, _) = unsafe { <Processor as WordSections<u64>>::cmpxchg(item, old, new) };
    outcome == Outcome::Done
}

impl<const N: usize> LedgerCore<N> {
    /// The way of the set in this thread's lane that holds `key`, or 0 for one that is free.
    pub(super) fn find(&self, set: usize, entry: usize, key: u64) -> Option<usize> {
        (0..WAYS).find(|&way| Way::<N>::at_entry(set, entry, way).key() == key)
    }

    /// Puts an account into this thread's lane, if there is room, or if `by_force` and another account there can
    /// leave.
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

    /// Takes an account out of this thread's lane, whose way is full, and puts it there again.
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

    /// Frees a way of this thread's lane, unless somebody else has its account's lock.
    fn try_evict(&self, set: usize, entry: usize, way: usize) -> bool {
        let key = Way::<N>::at_entry(set, entry, way).key();
        if key == 0 || key & EVICTING != 0 {
            return false;
        }
        // SAFETY: the key was found in a lane of this ledger.
        let record = unsafe { Record::<N>::of_key(key) };
        let Some(_guard) = record.lock().try_lock() else { return false };
        self.evict_way(record, set, entry, way)
    }

    /// Frees a way, under its account's lock. Whether that could be done.
    fn evict_way(&self, record: Record<N>, set: usize, entry: usize, way: usize) -> bool {
        let evicting = record.key() | EVICTING;
        if !replace(set, way, record.key(), evicting) {
            return false;
        }
        // The section was on the lane that this thread was on then, which need not be the one it looked at.
        // Only one way of an account that is not shut is leaving at a time.
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

    /// Adds what a way holds to its account. Under the account's lock; the way is leaving.
    pub(super) fn flush_way(&self, record: Record<N>, way: Way<N>) {
        for index in 0..N {
            // Relaxed: sections on its lane stored it, and its key after that, or a fence has passed.
            let n = way.counter(index).load(Relaxed);
            if n != 0 {
                let transfer = record.begin_transfer(index, way.way_id());
                record.transfer_in(transfer, n);
                way.counter(index).store(0, Relaxed);
            }
        }
        record.end_transfers();
    }

    /// Frees a way that is leaving and empty.
    pub(super) fn free_way(&self, record: Record<N>, way: Way<N>) {
        way.set_key(0);
        record.set_way_count(record.way_count() - 1);
        if record.way_count() == 0 && !record.is_open() {
            self.push_free(record);
        }
    }

    /// Puts an account's key into a free way of the lane that this thread is on. Under the account's lock.
    fn occupy(&self, record: Record<N>, set: usize, way: usize) {
        // Counted first: a child that a fork leaves in between has a record that is never free, not one that
        // is free too early.
        record.set_way_count(record.way_count() + 1);
        match replace(set, way, 0, record.key()) {
            // Acquire: pairs with the Release of the key that was 0. Sections that charge the way come after this,
            // or run on this CPU after another thread, and find its counters 0.
            true => memory_fence(Acquire),
            false => record.set_way_count(record.way_count() - 1),
        }
    }
}

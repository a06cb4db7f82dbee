//! An account's exact values.
//!
//! Under an account's lock its keys in lanes are marked as leaving, so that no section begins to charge them, and a fence
//! ends those that do. Then its words are noted, each at an instant of its own; who charges them later waits for the
//! lock. When the last one is, the account comes to what was noted and what its ways hold. Others are not held up.

use super::cache;
use super::cache::{EVICTING, Way};
use super::core::LedgerCore;
use super::record::{Record, wrapped};
use crate::sys::atomic::Ordering::Relaxed;
use crate::sys::fence;
use crate::sys::lock::Guard;

impl<const N: usize> LedgerCore<N> {
    /// Takes an account's lock, and ends what a report has begun with the account, if it can.
    pub(super) fn lock_account(&self, record: Record<N>) -> Guard<'_> {
        self.recover_after_fork();
        let guard = record.lock().lock();
        self.finish_capture(record, self.snapshot_state.stage());
        guard
    }

    /// The same if nobody has the lock and no report has the account still. Waits for nobody.
    pub(super) fn try_lock_account(&self, record: Record<N>) -> Option<Guard<'_>> {
        self.recover_after_fork();
        let guard = record.lock().try_lock()?;
        self.finish_capture(record, self.snapshot_state.stage());
        (!record.is_captured()).then_some(guard)
    }

    /// The ways that hold an account, if they are marked.
    fn ways_of(&self, record: Record<N>) -> impl Iterator<Item = Way<N>> {
        let set = (record.way_count() > 0).then(|| self.set_of(record));
        let ways = set.into_iter().flat_map(Way::in_all_lanes);
        ways.filter(move |way| way.key() == record.key() | EVICTING)
    }

    /// Marks an account's keys, if it is in lanes; then a fence is to come. Under its lock.
    pub(super) fn mark_evicting(&self, record: Record<N>) {
        if record.way_count() > 0 {
            Way::<N>::in_all_lanes(self.set_of(record))
                .filter(|way| way.key() == record.key())
                .for_each(|way| way.set_key(record.key() | EVICTING));
        }
    }

    pub(super) fn unmark_evicting(&self, record: Record<N>) {
        self.ways_of(record).for_each(|way| way.set_key(record.key()));
    }

    /// Adds what the ways of an account hold, which are marked.
    pub(super) fn add_ways(&self, record: Record<N>, total: &mut [i64; N]) {
        for way in self.ways_of(record) {
            for (index, total) in total.iter_mut().enumerate() {
                // Relaxed: the fence makes visible what sections committed.
                *total = total.wrapping_add(way.counter(index).load(Relaxed));
            }
        }
    }

    /// Calls `f` while no section charges an account, whose keys may be marked already. Under its lock.
    fn while_marked<R>(&self, record: Record<N>, is_marked: bool, f: impl FnOnce() -> R) -> R {
        let _marked = (!is_marked).then(|| {
            self.mark_evicting(record);
            UnmarkOnDrop { shared: self, record }
        });
        if record.way_count() > 0 {
            fence::fence();
        }
        f()
    }

    /// An account's counters at one instant.
    pub(super) fn snapshot(&self, record: Record<N>) -> [i64; N] {
        let _guard = self.lock_account(record);
        let captured = self.captured(record);
        self.while_marked(record, captured.is_some(), || {
            // After the fence, which may panic. The instant is when the last word is noted.
            let mut total = captured.unwrap_or_else(|| record.begin_capture());
            self.add_ways(record, &mut total);
            if captured.is_none() {
                record.end_capture();
            }
            total.map(wrapped)
        })
    }

    /// One counter's value at one instant.
    pub(super) fn sum(&self, record: Record<N>, index: usize) -> i64 {
        let _guard = self.lock_account(record);
        let captured = self.captured(record);
        let mut ways = [0; N];
        self.while_marked(record, captured.is_some(), || {
            self.add_ways(record, &mut ways);
            // The instant, unless a report has noted the account: who has charged it since has not returned.
            let words = captured.map_or_else(|| record.value(index), |captured| captured[index]);
            wrapped(words.wrapping_add(ways[index]))
        })
    }

    /// Adds what lanes hold to the accounts it belongs to.
    pub(super) fn sync(&self) {
        self.recover_after_fork();
        if let Some(item) = self.item() {
            cache::all_ways(item).for_each(|way| self.sync_account(way));
        }
    }

    fn sync_account(&self, way: Way<N>) {
        let key = way.key() & !EVICTING;
        if key == 0 || (0..N).all(|index| way.counter(index).load(Relaxed) == 0) {
            return;
        }
        // SAFETY: the key was found in a lane of this ledger.
        let record = unsafe { Record::<N>::of_key(key) };
        let mut guard = self.lock_account(record);
        // What a report has noted must stay where it is.
        while record.is_captured() {
            drop(guard);
            self.await_instant();
            guard = self.lock_account(record);
        }
        // Not only emptied: a processor may load a counter before the key, and so find the key that has come back and
        // what the counter was before. Whoever claims the way has a barrier.
        let take_out = |way| {
            self.flush_way(record, way);
            self.free_way(record, way);
        };
        self.while_marked(record, false, || self.ways_of(record).for_each(take_out));
    }
}

/// Takes the marks away, also when there is no fence and who wants one panics.
struct UnmarkOnDrop<'a, const N: usize> {
    shared: &'a LedgerCore<N>,
    record: Record<N>,
}

impl<const N: usize> Drop for UnmarkOnDrop<'_, N> {
    fn drop(&mut self) {
        self.shared.unmark_evicting(self.record);
    }
}

//! Exact reads of one account.
//!
//! The reader takes the account's lock and marks the account's keys in lanes, so that no section
//! begins to charge them. A fence ends the sections that do. Then it captures the account's words,
//! each at an instant of its own. A thread that charges a captured word waits for the lock.
//!
//! The instant of the read is when the last word is captured. The value is the sum of the captured
//! words and the marked ways. Charges of other accounts do not wait.

use super::cache;
use super::cache::{EVICTING, Way};
use super::core::LedgerCore;
use super::record::{Record, wrapped};
use crate::sys::atomic::Ordering::Relaxed;
use crate::sys::fence;
use crate::sys::lock::Guard;

impl<const N: usize> LedgerCore<N> {
    /// Takes an account's lock, and ends a capture that a `snapshot_all` has finished with.
    pub(super) fn lock_account(&self, record: Record<N>) -> Guard<'_> {
        self.recover_after_fork();
        let guard = record.lock().lock();
        self.finish_capture(record, self.snapshot_state.stage());
        guard
    }

    /// Takes an account's lock if it is free and the account not captured. Never waits.
    pub(super) fn try_lock_account(&self, record: Record<N>) -> Option<Guard<'_>> {
        self.recover_after_fork();
        let guard = record.lock().try_lock()?;
        self.finish_capture(record, self.snapshot_state.stage());
        (!record.is_captured()).then_some(guard)
    }

    /// Returns the marked ways that hold an account.
    fn ways_of(&self, record: Record<N>) -> impl Iterator<Item = Way<N>> {
        let set = (record.way_count() > 0).then(|| self.set_of(record));
        let ways = set.into_iter().flat_map(Way::in_all_lanes);
        ways.filter(move |way| way.key() == record.key() | EVICTING)
    }

    /// Marks an account's keys in lanes. The caller holds its lock, and runs a fence next.
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

    /// Adds the content of an account's marked ways to `total`.
    pub(super) fn add_ways(&self, record: Record<N>, total: &mut [i64; N]) {
        for way in self.ways_of(record) {
            for (index, total) in total.iter_mut().enumerate() {
                // Relaxed: the fence makes visible what sections have committed.
                *total = total.wrapping_add(way.counter(index).load(Relaxed));
            }
        }
    }

    /// Calls `f` while no section charges an account. The caller holds its lock.
    ///
    /// `is_marked` says that the account's keys are marked already.
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

    /// Returns an account's counters at one instant.
    pub(super) fn snapshot(&self, record: Record<N>) -> [i64; N] {
        let _guard = self.lock_account(record);
        let captured = self.captured(record);
        self.while_marked(record, captured.is_some(), || {
            // This comes after the fence, which may panic. The instant is when the last word is
            // captured.
            let mut total = captured.unwrap_or_else(|| record.begin_capture());
            self.add_ways(record, &mut total);
            if captured.is_none() {
                record.end_capture();
            }
            total.map(wrapped)
        })
    }

    /// Returns one counter of an account at one instant.
    pub(super) fn sum(&self, record: Record<N>, index: usize) -> i64 {
        let _guard = self.lock_account(record);
        let captured = self.captured(record);
        let mut ways = [0; N];
        self.while_marked(record, captured.is_some(), || {
            self.add_ways(record, &mut ways);
            // This load is the instant, unless a `snapshot_all` has captured the account. In that
            // case no charge since the capture has returned.
            let words = captured.map_or_else(|| record.value(index), |captured| captured[index]);
            wrapped(words.wrapping_add(ways[index]))
        })
    }

    pub(super) fn sync(&self) {
        self.recover_after_fork();
        if let Some(item) = self.item() {
            let _visitor = self.visit();
            cache::all_ways(item).for_each(|way| self.sync_account(way));
        }
        // Those of accounts that were closed during the visit.
        self.return_empty_chunks(usize::MAX);
    }

    fn sync_account(&self, way: Way<N>) {
        let key = way.key() & !EVICTING;
        if key == 0 || (0..N).all(|index| way.counter(index).load(Relaxed) == 0) {
            return;
        }
        // SAFETY: a key in a lane is that of a record of this ledger, which `self` borrows.
        let record = unsafe { Record::<N>::of_key(key) };
        let mut guard = self.lock_account(record);
        // A captured way must keep its content.
        while record.is_captured() {
            drop(guard);
            self.await_instant();
            guard = self.lock_account(record);
        }
        // Emptying the way is not enough. A processor may load a counter before the key, and so
        // find a key that was stored again with the old counter. A thread that occupies a free way
        // has a barrier.
        let take_out = |way| {
            self.flush_way(record, way);
            self.free_way(record, way);
        };
        self.while_marked(record, false, || self.ways_of(record).for_each(take_out));
    }
}

/// Removes the marks when dropped, also if the fence panics.
struct UnmarkOnDrop<'a, const N: usize> {
    shared: &'a LedgerCore<N>,
    record: Record<N>,
}

impl<const N: usize> Drop for UnmarkOnDrop<'_, N> {
    fn drop(&mut self) {
        self.shared.unmark_evicting(self.record);
    }
}

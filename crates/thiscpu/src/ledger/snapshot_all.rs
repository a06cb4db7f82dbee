//! A report: all accounts at one instant, while charges go on.
//!
//! 1. Each open account is *noted*, one after another: its words' values are written down, and its keys in lanes marked.
//!    Who charges it from then on finds that, takes its lock, and writes down what the word has come to; a move
//!    writes its change down.
//! 2. A fence. No section charges any account any more.
//! 3. The instant: one store. What is charged from then on is not written down. Whoever has an account's lock adds what its
//!    ways hold to what is written, if nobody has, and releases the account: this thread, which goes through
//!    all of them, or whoever charges one before that.
//!
//! So a charge waits for nobody but who has its account's lock, for a moment. The kernel's way of copying what is written
//! to, which others read as it was.
//!
//! A charge is in its word already when it finds the account noted, and it may be written down with it already: if it met an older note,
//! of a snapshot or of the report before, and was held up since. So it is not added to what is written down, but the word
//! is written down anew. That has charges of others too, who have not returned: they do the same, or find that the instant
//! has passed, and are in the report all the same. None of them began after the instant, if that has not passed when the
//! word has been read.

use core::cell::UnsafeCell;

use super::core::LedgerCore;
use super::record::{AccountId, Record, wrapped};
use super::snapshot_state::{INSTANT_PASSED, NONE, Stage};
use crate::sys::fence;

/// What is written down of an account.
struct Captured<const N: usize> {
    id: AccountId,
    total: [i64; N],
}

/// A place for each account, by number. Accessed under the account's lock.
struct Captures<const N: usize>(Box<[UnsafeCell<Option<Captured<N>>>]>);

impl<const N: usize> LedgerCore<N> {
    /// The notes of the report under way.
    fn captures(&self, stage: Stage) -> Option<&Captures<N>> {
        // SAFETY: a report has its notes until it has taken each noted account's lock and released it. So
        // they are there for who finds the account noted, under its lock; nobody else asks.
        unsafe { ((stage.0 & !INSTANT_PASSED) as *const Captures<N>).as_ref() }
    }

    /// The place of an account in the notes. Under its lock, for as long as the result is used.
    #[expect(clippy::mut_from_ref, reason = "the account's lock makes it exclusive")]
    fn capture_slot(&self, record: Record<N>, stage: Stage) -> Option<&mut Option<Captured<N>>> {
        let place = &self.captures(stage)?.0[record.number() as usize];
        // SAFETY: only who has the account's lock uses its place, and only one reference at a time.
        Some(unsafe { &mut *place.get() })
    }

    /// What is written down of an account, if it is. The same.
    fn capture(&self, record: Record<N>, stage: Stage) -> Option<&mut Captured<N>> {
        if record.is_captured() { self.capture_slot(record, stage)?.as_mut() } else { None }
    }

    /// What an account that is noted has come to, without its ways. Under its lock, once it is settled.
    pub(super) fn captured(&self, record: Record<N>) -> Option<[i64; N]> {
        self.capture(record, self.snapshot_state.stage()).map(|note| note.total)
    }

    /// Completes the note of an account if the instant has passed, and releases the account. Under its lock, by whoever
    /// comes to have it, before anything else.
    pub(super) fn finish_capture(&self, record: Record<N>, stage: Stage) {
        if stage.is_before_instant() || !record.is_captured() {
            return;
        }
        // Without one this is a child that was forked amid the report.
        if let Some(note) = self.capture(record, stage) {
            self.add_ways(record, &mut note.total);
        }
        self.unmark_evicting(record);
        record.end_capture();
    }

    /// Writes down a change of an account, if it belongs into the report. Under its lock.
    pub(super) fn capture_change(&self, record: Record<N>, stage: Stage, index: usize, n: i64) {
        if stage.is_before_instant()
            && let Some(note) = self.capture(record, stage)
        {
            note.total[index] = note.total[index].wrapping_add(n);
        }
    }

    /// Writes down what a counter has come to, with a charge that has found the account noted, and may be written down already.
    /// Under its lock.
    pub(super) fn recapture(&self, record: Record<N>, index: usize) {
        let stage = self.snapshot_state.stage();
        let Some(note) = self.capture(record, stage).filter(|_| stage.is_before_instant()) else {
            return;
        };
        let value = record.value(index);
        // If the instant has passed meanwhile, the charge may be after it.
        if self.snapshot_state.stage().is_before_instant() {
            note.total[index] = value;
        }
    }

    /// Waits until the instant of the report under way has passed, which has the lock until then.
    pub(super) fn await_instant(&self) {
        drop(self.registry.lock());
    }

    /// An account that is closed before the instant is in no report.
    pub(super) fn discard_capture(&self, record: Record<N>) {
        let stage = self.snapshot_state.stage();
        if stage.is_before_instant() && record.is_captured() {
            if let Some(place) = self.capture_slot(record, stage) {
                *place = None;
            }
            self.unmark_evicting(record);
            record.end_capture();
        }
    }

    /// All open accounts at one instant.
    pub(super) fn snapshot_all(&self) -> Vec<(AccountId, [i64; N])> {
        self.recover_after_fork();
        let _only = self.snapshot_lock.lock();
        // Until the instant, no account is opened.
        let opening = self.registry.lock();
        let notes: Captures<N> =
            Captures((0..self.count()).map(|_| UnsafeCell::new(None)).collect());
        let stage = Stage(core::ptr::from_ref(&notes) as usize);
        self.snapshot_state.advance(stage);
        let ends = ReleaseAll { shared: self, count: notes.0.len() };
        let mut is_any_in_lanes = false;
        for record in self.records() {
            let _guard = record.lock().lock();
            if record.is_open() {
                self.mark_evicting(record);
                is_any_in_lanes |= record.way_count() > 0;
                let note = Captured { id: record.id(), total: record.begin_capture() };
                self.capture_slot(record, stage).expect("a report is under way").replace(note);
            }
        }
        if is_any_in_lanes {
            fence::fence();
        }
        self.snapshot_state.advance(Stage(stage.0 | INSTANT_PASSED));
        drop(opening);
        drop(ends);
        let captured = notes.0.into_iter().filter_map(UnsafeCell::into_inner);
        captured.map(|note| (note.id, note.total.map(wrapped))).collect()
    }
}

/// Releases all accounts before the notes go, also when there is no fence and the report panics.
struct ReleaseAll<'a, const N: usize> {
    shared: &'a LedgerCore<N>,
    /// How many places there are.
    count: usize,
}

impl<const N: usize> Drop for ReleaseAll<'_, N> {
    fn drop(&mut self) {
        let report = &self.shared.snapshot_state;
        if report.stage().is_before_instant() {
            report.advance(NONE);
        }
        // Whoever uses a note has its account's lock.
        self.shared
            .records()
            .take(self.count)
            .for_each(|record| drop(self.shared.lock_account(record)));
        report.advance(NONE);
    }
}

//! A snapshot of all accounts at one instant, while charges continue.
//!
//! 1. Each open account is *captured*, one after another: its words' values are written down, and
//!    its keys in lanes are marked. A thread that charges it afterwards finds the mark, takes the
//!    account's lock, and captures the word again. A transfer changes the captured values too.
//! 2. Fence. No section charges any account any more.
//! 3. The instant: one store. Charges after it are not captured.
//! 4. The next holder of an account's lock adds its marked ways to the capture, and releases the
//!    account. That is the snapshotting thread, which visits all accounts, or a thread that charges
//!    one before.
//!
//! So a charge waits only for the holder of its account's lock, briefly. The kernel copies pages on
//! write in this way, while others read them as they were.
//!
//! A charge is in its word before it finds the account captured, and the capture may include it
//! already. That happens if it found an earlier capture, of an exact read or of the previous
//! snapshot, and was delayed. So the amount is not added to the capture; the word is captured
//! again. The word may include charges of other threads that have not returned either. They capture
//! it again too, or find that the instant has passed, and are in the snapshot in any case. None of
//! them began after the instant if it has not passed when the word has been read.

use core::cell::UnsafeCell;

use super::core::LedgerCore;
use super::record::{AccountId, Record, wrapped};
use super::snapshot_state::{INSTANT_PASSED, NONE, Stage};
use crate::sys::fence;

struct Captured<const N: usize> {
    id: AccountId,
    total: [i64; N],
}

/// A slot for each account, by number. Accessed under the account's lock.
struct Captures<const N: usize>(Box<[UnsafeCell<Option<Captured<N>>>]>);

impl<const N: usize> LedgerCore<N> {
    /// Returns the captures of the snapshot in progress.
    fn captures(&self, stage: Stage) -> Option<&Captures<N>> {
        // SAFETY: a snapshot keeps its captures until it has taken and released the lock of each
        // captured account. Callers hold the lock of an account, and use the captures only if that
        // account is captured.
        unsafe { ((stage.0 & !INSTANT_PASSED) as *const Captures<N>).as_ref() }
    }

    /// Returns an account's slot. The caller holds the account's lock while it uses the slot.
    #[expect(clippy::mut_from_ref, reason = "the account's lock makes it exclusive")]
    fn capture_slot(&self, record: Record<N>, stage: Stage) -> Option<&mut Option<Captured<N>>> {
        let slot = &self.captures(stage)?.0[record.number() as usize];
        // SAFETY: the caller holds the account's lock, which guards the slot, and has one reference
        // to it at a time.
        Some(unsafe { &mut *slot.get() })
    }

    /// Returns an account's captured values, if there are any. The caller holds its lock.
    fn capture(&self, record: Record<N>, stage: Stage) -> Option<&mut Captured<N>> {
        if record.is_captured() { self.capture_slot(record, stage)?.as_mut() } else { None }
    }

    /// Returns an account's captured values, without its ways.
    ///
    /// The caller holds the account's lock, and has called `finish_capture`.
    pub(super) fn captured(&self, record: Record<N>) -> Option<[i64; N]> {
        self.capture(record, self.snapshot_state.stage()).map(|captured| captured.total)
    }

    /// Completes the capture of an account if the instant has passed, and releases the account.
    ///
    /// Each holder of the account's lock calls it first.
    pub(super) fn finish_capture(&self, record: Record<N>, stage: Stage) {
        if stage.is_before_instant() || !record.is_captured() {
            return;
        }
        // There is none in a child that was forked in the middle of the snapshot.
        if let Some(captured) = self.capture(record, stage) {
            self.add_ways(record, &mut captured.total);
        }
        self.unmark_evicting(record);
        record.end_capture();
    }

    /// Adds a change to an account's captured values before the instant, under its lock.
    pub(super) fn capture_change(&self, record: Record<N>, stage: Stage, index: usize, n: i64) {
        if stage.is_before_instant()
            && let Some(captured) = self.capture(record, stage)
        {
            captured.total[index] = captured.total[index].wrapping_add(n);
        }
    }

    /// Captures a counter again, after a charge that found the account captured.
    ///
    /// The first capture may include the charge already. The caller holds the account's lock.
    pub(super) fn recapture(&self, record: Record<N>, index: usize) {
        let stage = self.snapshot_state.stage();
        let Some(captured) = self.capture(record, stage).filter(|_| stage.is_before_instant())
        else {
            return;
        };
        let value = record.value(index);
        // If the instant has passed meanwhile, the charge may be after it.
        if self.snapshot_state.stage().is_before_instant() {
            captured.total[index] = value;
        }
    }

    /// Waits until the instant of the snapshot in progress, which holds this lock until then.
    pub(super) fn await_instant(&self) {
        drop(self.registry.lock());
    }

    /// Discards the capture of an account that is closed before the instant, else completes it.
    pub(super) fn end_capture_of_closed(&self, record: Record<N>) {
        let stage = self.snapshot_state.stage();
        // The instant may have passed since the caller took the account's lock. Then the capture
        // needs what the ways hold.
        self.finish_capture(record, stage);
        if record.is_captured() {
            if let Some(slot) = self.capture_slot(record, stage) {
                *slot = None;
            }
            self.unmark_evicting(record);
            record.end_capture();
        }
    }

    /// Returns all open accounts with their counters, at one instant of this call.
    pub(super) fn snapshot_all(&self) -> Vec<(AccountId, [i64; N])> {
        self.recover_after_fork();
        let only = self.snapshot_lock.lock();
        // No account is opened before the instant.
        let opening = self.registry.lock();
        let captures: Captures<N> =
            Captures((0..self.count()).map(|_| UnsafeCell::new(None)).collect());
        let stage = Stage(core::ptr::from_ref(&captures) as usize);
        self.snapshot_state.advance(stage);
        let release = ReleaseAll { shared: self };
        let mut is_any_in_lanes = false;
        for record in self.records() {
            let _guard = record.lock().lock();
            if record.is_open() {
                self.mark_evicting(record);
                is_any_in_lanes |= record.way_count() > 0;
                let captured = Captured { id: record.id(), total: record.begin_capture() };
                self.capture_slot(record, stage)
                    .expect("a snapshot is in progress")
                    .replace(captured);
            }
        }
        if is_any_in_lanes {
            fence::fence();
        }
        self.snapshot_state.advance(Stage(stage.0 | INSTANT_PASSED));
        drop(opening);
        drop(release);
        drop(only);
        // Those of accounts that were closed during the snapshot.
        self.return_empty_chunks(usize::MAX);
        let all = captures.0.into_iter().filter_map(UnsafeCell::into_inner);
        all.map(|captured| (captured.id, captured.total.map(wrapped))).collect()
    }
}

/// Releases all accounts when dropped, before the captures are; also if the fence panics.
struct ReleaseAll<'a, const N: usize> {
    shared: &'a LedgerCore<N>,
}

impl<const N: usize> Drop for ReleaseAll<'_, N> {
    fn drop(&mut self) {
        let state = &self.shared.snapshot_state;
        if state.stage().is_before_instant() {
            state.advance(NONE);
        }
        // Taking each lock waits for every thread that uses a capture.
        self.shared.records().for_each(|record| drop(self.shared.lock_account(record)));
        state.advance(NONE);
    }
}

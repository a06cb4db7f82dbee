//! When a structure leaves shared mode: after enough plentiful calls in a row.
//!
//! Budgets and rates use it. A recall costs about as much as that many calls in shared mode.

use crate::sys::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The least number of plentiful calls in a row that lead to per-CPU mode.
///
/// These calls cost about as much as the fence of the next recall.
pub(crate) const CALLS_MIN: u32 = 512;

/// The largest such number, to which it doubles while per-CPU mode does not pay.
///
/// These calls take a fraction of a millisecond.
const CALLS_MAX: u32 = 1 << 14;

/// The count that a new structure starts with, so that it changes its mode after 32 calls.
///
/// Thirty-two calls show that it is in use and worth its memory in the lanes.
pub(crate) const INITIAL_CALLS: u32 = CALLS_MIN - 32;

/// How many times as long as the recall that ends it per-CPU mode must last to pay.
const RECALLS_TO_PAY: u64 = 8;

/// The count of plentiful calls in shared mode.
#[derive(Debug)]
pub(crate) struct PlentifulCalls {
    /// About how many consecutive calls have found plenty of units.
    count: AtomicU32,
    /// After how many of them per-CPU mode begins. Changes under the structure's lock.
    to_percpu: AtomicU32,
    /// The time at which per-CPU mode began last. Changes under that lock.
    percpu_since: AtomicU64,
}

impl PlentifulCalls {
    /// Creates a count that starts at `count`.
    pub(crate) const fn new(count: u32) -> PlentifulCalls {
        PlentifulCalls {
            count: AtomicU32::new(count),
            to_percpu: AtomicU32::new(CALLS_MIN),
            percpu_since: AtomicU64::new(0),
        }
    }

    /// Counts a call in shared mode.
    ///
    /// Returns whether it is plentiful, after enough others in a row. Calls on two CPUs at the same
    /// time may count as one.
    #[inline]
    pub(crate) fn count(&self, is_plentiful: bool) -> bool {
        // Relaxed, all four: the counts are hints, and nothing is published with them.
        let before = self.count.load(Relaxed);
        if is_plentiful {
            self.count.store(before.saturating_add(1), Relaxed);
            return before >= self.to_percpu.load(Relaxed);
        }
        if before != 0 {
            self.count.store(0, Relaxed);
        }
        false
    }

    /// Starts the count over.
    pub(crate) fn reset(&self) {
        self.count(false);
    }

    /// Records that per-CPU mode begins at the time `now`. The caller holds the lock.
    pub(crate) fn note_percpu_mode(&self, now: u64) {
        // Relaxed: only holders of the lock use the time.
        self.percpu_since.store(now, Relaxed);
    }

    /// Adapts how many calls lead to per-CPU mode, which a recall has ended.
    ///
    /// The caller holds the lock. `began` and `ended` are the times of the recall. The number
    /// doubles if per-CPU mode was so short that the recall took much of the time. Otherwise it
    /// halves.
    pub(crate) fn note_recall(&self, began: u64, ended: u64) {
        // Relaxed, all: hints, which only a holder of the lock changes.
        let lasted = began.saturating_sub(self.percpu_since.load(Relaxed));
        let calls = self.to_percpu.load(Relaxed);
        let calls = match lasted < RECALLS_TO_PAY * ended.saturating_sub(began) {
            true => (2 * calls).min(CALLS_MAX),
            false => (calls / 2).max(CALLS_MIN),
        };
        self.to_percpu.store(calls, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percpu_mode_needs_more_calls_while_it_is_short() {
        /// Returns how many calls are counted before per-CPU mode.
        fn calls(calls: &PlentifulCalls) -> u32 {
            calls.reset();
            (0..).find(|_| calls.count(true)).unwrap()
        }
        let plentiful = PlentifulCalls::new(CALLS_MIN - 2);
        assert_eq!([true; 3].map(|call| plentiful.count(call)), [false, false, true]);
        assert!(!plentiful.count(false) && !plentiful.count(true));
        // Per-CPU mode lasts `lasted` ns, and the recall 10 ns.
        let recall = |lasted: u64| {
            plentiful.note_percpu_mode(1000);
            plentiful.note_recall(1000 + lasted, 1000 + lasted + 10);
            calls(&plentiful)
        };
        assert_eq!([79, 79, 80, 80, 80].map(recall), [1024, 2048, 1024, 512, 512]);
        assert_eq!([0; 6].map(recall), [1024, 2048, 4096, 8192, 16384, 16384]);
    }
}

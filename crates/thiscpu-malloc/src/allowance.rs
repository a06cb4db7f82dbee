//! The time that runs of the [scavenger](crate::scavenge) may take: a fiftieth of all time.
//!
//! A run adds up what it does, by estimates. The coarse clock, which advances by milliseconds at a
//! time, corrects them: a run counts as long as the clock says, if that is more.

use core::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// Runs get one `PART`th of the time.
const PART: u64 = 50;
/// The most time that is saved for later runs: what two seconds allow.
const SAVED_NS_MAX: i64 = (2_000_000_000 / PART) as i64;
/// The most time that runs owe.
///
/// It is little, because the clock also counts the time in which the thread waited for its CPU.
const OWED_NS_MAX: i64 = SAVED_NS_MAX / 4;

// Relaxed, for both: runs access them under their lock.

/// The time that runs have not used. The caller has a lock for it.
#[derive(Debug)]
pub(crate) struct SavedTime {
    /// It is below 0 if a run took longer than it was allowed to.
    saved_ns: AtomicI64,
    /// When the saved time was last added to; 0 before the first run.
    since_ns: AtomicU64,
}

/// The time that one run may take, and what it has taken.
#[derive(Debug)]
pub(crate) struct Allowance {
    allowed_ns: u64,
    spent_ns: u64,
}

impl SavedTime {
    pub(crate) const fn new() -> SavedTime {
        SavedTime { saved_ns: AtomicI64::new(0), since_ns: AtomicU64::new(0) }
    }

    /// Begins a run that may take the saved time, between `least_ns` and `most_ns`.
    pub(crate) fn begin(&self, now_ns: u64, least_ns: u64, most_ns: u64) -> Allowance {
        let since_ns = match self.since_ns.load(Relaxed) {
            0 => now_ns,
            since_ns => since_ns,
        };
        let earned_ns = (now_ns.saturating_sub(since_ns) / PART) as i64;
        let saved_ns = (self.saved_ns.load(Relaxed) + earned_ns).min(SAVED_NS_MAX);
        self.saved_ns.store(saved_ns, Relaxed);
        self.since_ns.store(now_ns, Relaxed);
        Allowance { allowed_ns: (saved_ns.max(0) as u64).clamp(least_ns, most_ns), spent_ns: 0 }
    }

    /// Ends a run that took `by_clock_ns` by the coarse clock.
    pub(crate) fn end(&self, run: Allowance, by_clock_ns: u64) {
        // A thread may be stopped for hours in the middle of a run.
        let spent_ns = run.spent_ns.max(by_clock_ns).min(2 * SAVED_NS_MAX as u64) as i64;
        let left_ns = self.saved_ns.load(Relaxed) - spent_ns;
        self.saved_ns.store(left_ns.max(-OWED_NS_MAX), Relaxed);
    }
}

impl Allowance {
    /// Returns the time that is left.
    pub(crate) fn left_ns(&self) -> u64 {
        self.allowed_ns.saturating_sub(self.spent_ns)
    }

    /// Returns whether any time is left.
    pub(crate) fn is_left(&self) -> bool {
        self.left_ns() > 0
    }

    /// Counts time that something has taken, which may be more than is left.
    pub(crate) fn spend(&mut self, ns: u64) {
        self.spent_ns += ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    /// The most that a run may take.
    const RUN_MAX: u64 = 4 * MS;

    /// Does runs that take all the time that they may, and returns their sum.
    fn spend_all(saved: &SavedTime, times_ms: impl Iterator<Item = u64>) -> u64 {
        let run = |now_ms: u64| {
            let mut run = saved.begin(now_ms * MS, 0, RUN_MAX);
            let spent = run.left_ns();
            run.spend(spent);
            saved.end(run, 0);
            spent
        };
        times_ms.map(run).sum()
    }

    #[test]
    fn runs_take_a_fiftieth_of_the_time() {
        let saved = SavedTime::new();
        // The first run begins the time that counts.
        assert_eq!(spend_all(&saved, 7_000..=8_000), 20 * MS);
        assert_eq!(spend_all(&saved, (8_000..=9_000).step_by(100)), 20 * MS);
        // A pause saves the time of two seconds, which no single run may take.
        assert_eq!(spend_all(&saved, 99_000..=99_000), RUN_MAX);
        assert_eq!(spend_all(&saved, 99_000..=99_100), 38 * MS);
    }

    #[test]
    fn time_by_the_clock_counts_if_it_is_more() {
        let saved = SavedTime::new();
        spend_all(&saved, 1_000..=1_000);
        let mut run = saved.begin(2_000 * MS, 0, RUN_MAX);
        run.spend(MS);
        saved.end(run, 40 * MS);
        assert!(!saved.begin(2_000 * MS, 0, RUN_MAX).is_left());
    }

    #[test]
    fn runs_owe_what_they_took_too_long_but_little() {
        let saved = SavedTime::new();
        spend_all(&saved, 1_000..=1_000);
        // 20 ms were saved, and 5 are owed, which 250 ms earn.
        let run = saved.begin(2_000 * MS, 0, RUN_MAX);
        saved.end(run, 25 * MS);
        assert!(!saved.begin(2_240 * MS, 0, RUN_MAX).is_left());
        assert!(saved.begin(2_260 * MS, 0, RUN_MAX).is_left());
        // A stop for an hour costs half a second.
        let run = saved.begin(2_260 * MS, 0, RUN_MAX);
        saved.end(run, 3_600_000 * MS);
        assert!(!saved.begin(2_750 * MS, 0, RUN_MAX).is_left());
        assert!(saved.begin(2_770 * MS, 0, RUN_MAX).is_left());
    }

    #[test]
    fn runs_may_have_a_least_time() {
        let saved = SavedTime::new();
        for _ in 0..2 {
            let mut run = saved.begin(1_000 * MS, MS, RUN_MAX);
            assert_eq!(run.left_ns(), MS);
            run.spend(MS);
            saved.end(run, 0);
        }
        assert!(!saved.begin(1_000 * MS, 0, RUN_MAX).is_left());
    }
}

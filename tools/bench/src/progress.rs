//! The progress of a run on standard error.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use indicatif::{HumanCount, HumanDuration, ProgressBar};
use thiscpu_test_support::tool::{output, progress};

/// Audits that take less in all are not announced.
const ANNOUNCED_MIN: Duration = Duration::from_secs(5);

/// The bar, and what it needs to tell how long audits take.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    /// How many measurements of the run audit calls.
    audits: u64,
    has_announced: AtomicBool,
}

impl Progress {
    /// Makes a bar of `steps`, of which some audit calls.
    pub(crate) fn new(steps: u64, audits: u64) -> Self {
        Self { bar: progress::bar(steps), audits, has_announced: AtomicBool::new(false) }
    }

    /// Shows what begins now, as one more step.
    pub(crate) fn begin(&self, what: String) {
        self.bar.set_message(what);
        self.bar.inc(1);
    }

    /// Shows that `steps` steps are done or left out.
    pub(crate) fn skip_to(&self, steps: u64) {
        self.bar.set_position(steps);
    }

    /// Shows how far an audit is. Announces once how long all audits take, if that is long.
    pub(crate) fn audited(&self, done: u64, wanted: u64, elapsed: Duration) {
        const ESTIMATED_AFTER: Duration = Duration::from_millis(200);
        if elapsed < ESTIMATED_AFTER || done == 0 {
            return;
        }
        let seconds = elapsed.as_secs_f64() / done as f64;
        let duration =
            |calls: f64| Duration::try_from_secs_f64(calls * seconds).unwrap_or(Duration::MAX);
        let each = duration(wanted as f64);
        let all = duration(wanted as f64 * self.audits as f64);
        // Relaxed: only the thread that conducts slices calls this.
        if all >= ANNOUNCED_MIN && !self.has_announced.swap(true, Relaxed) {
            let text = format!(
                "auditing {} calls takes about {}, and {} in all for {} measurements; Ctrl-C \
                 ends it with the audit so far",
                HumanCount(wanted),
                HumanDuration(each),
                HumanDuration(all),
                self.audits
            );
            self.aside(|| output::note(&text));
        }
        if !self.bar.is_hidden() {
            let left = HumanDuration(each.saturating_sub(elapsed));
            let percent = 100 * u128::from(done.min(wanted)) / u128::from(wanted.max(1));
            self.bar.set_message(format!("audited {percent} %, {left:#} left"));
        }
    }

    /// Hides the bar while `print` writes to the same terminal.
    pub(crate) fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }
}

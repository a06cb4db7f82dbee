//! Violations, in a form that signal handlers and forked children can report too.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// An impossible answer.
///
/// Plain data: a handler creates one without allocating, and a forked child writes one to memory
/// that it shares with its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    /// The question.
    pub(crate) what: &'static str,
    /// The least possible answer.
    pub(crate) low: i64,
    /// The greatest possible answer.
    pub(crate) high: i64,
    /// The actual answer.
    pub(crate) found: i64,
}

impl Violation {
    /// A thread or child that panics. Its panic hook has printed the reason, except in a child.
    pub(crate) const PANIC: Violation = Violation::event("panics");
    /// A thread that makes no progress.
    pub(crate) const HANG: Violation = Violation::event("makes no progress");

    /// Describes an event that happened once and must never happen.
    const fn event(what: &'static str) -> Violation {
        Violation { what, low: 0, high: 0, found: 1 }
    }
}

/// The result of a check.
pub(crate) type Checked<T = ()> = Result<T, Violation>;

/// Checks that `found` is `expected`.
pub(crate) fn equal(what: &'static str, expected: i64, found: i64) -> Checked {
    within(what, (expected, expected), found)
}

/// Checks that `found` is between two values, both included.
pub(crate) fn within(what: &'static str, (low, high): (i64, i64), found: i64) -> Checked {
    match low <= found && found <= high {
        true => Ok(()),
        false => Err(Violation { what, low, high, found }),
    }
}

/// Checks a condition that has no figures.
pub(crate) fn holds(what: &'static str, is_true: bool) -> Checked {
    equal(what, 1, i64::from(is_true))
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { what, low, high, found } = self;
        match low == high {
            true => write!(f, "{what}: expected {low}, found {found}"),
            false => write!(f, "{what}: expected {low} to {high}, found {found}"),
        }
    }
}

/// The finder of a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finder {
    /// The thread in this slot.
    Worker(usize),
    /// A signal handler on the thread in this slot.
    Handler(usize),
    /// A forked child.
    Child,
    /// The final check, after all workers have ended.
    FinalCheck,
    /// A sweep over all blocks in use.
    Sweep,
    /// The watchdog over the thread in this slot.
    Watchdog(usize),
}

impl fmt::Display for Finder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finder::Worker(slot) => write!(f, "worker {slot}"),
            Finder::Handler(slot) => write!(f, "a signal handler on worker {slot}"),
            Finder::Child => f.write_str("a forked child"),
            Finder::FinalCheck => f.write_str("the final check"),
            Finder::Sweep => f.write_str("a sweep over all blocks"),
            Finder::Watchdog(slot) => write!(f, "the watchdog over worker {slot}"),
        }
    }
}

/// A violation, with its place and its finder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The structure, or the part of the run.
    pub(crate) structure: &'static str,
    pub(crate) finder: Finder,
    pub(crate) violation: Violation,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, seen by {}: {}", self.structure, self.finder, self.violation)
    }
}

/// The number of failures that are kept; more would tell nothing new.
const KEPT: usize = 16;

/// The first failures of a run.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    begun: AtomicUsize,
    kept: [OnceLock<Failure>; KEPT],
}

impl Failures {
    /// Keeps a failure if there is room.
    ///
    /// Async-signal-safe: each number is drawn once, so one thread sets the cell of that number and
    /// no thread waits for it.
    pub(crate) fn add(&self, failure: Failure) {
        // SeqCst, to keep the order simple: a handler's number is drawn after what it interrupted
        // has drawn its own.
        if let Some(cell) = self.kept.get(self.begun.fetch_add(1, SeqCst)) {
            let _ = cell.set(failure);
        }
    }

    pub(crate) fn all(&self) -> Vec<Failure> {
        self.kept.iter().filter_map(OnceLock::get).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_shows_expected_and_found_values() {
        let violation = within("a sum", (3, 4), 5).unwrap_err();
        let failure = Failure { structure: "counter", finder: Finder::Worker(2), violation };
        assert_eq!(
            failure.to_string(),
            "counter, seen by worker 2: a sum: expected 3 to 4, found 5"
        );
        assert!(within("a sum", (3, 5), 5).is_ok());
        assert!(equal("a sum", 3, 4).unwrap_err().to_string().ends_with("expected 3, found 4"));
    }

    #[test]
    fn first_failures_are_kept() {
        let failures = Failures::default();
        assert!(failures.all().is_empty());
        for n in 0..2 * KEPT {
            let violation = Violation { what: "", low: 0, high: 0, found: n as i64 };
            failures.add(Failure { structure: "", finder: Finder::Child, violation });
        }
        let found: Vec<_> = failures.all().iter().map(|failure| failure.violation.found).collect();
        assert_eq!(found, (0..KEPT as i64).collect::<Vec<_>>());
    }
}

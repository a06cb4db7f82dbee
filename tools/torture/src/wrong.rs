//! What was found wrong, kept so that handlers and forked children can say it too.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// An answer that cannot be true. Plain data: a handler makes one without allocating, and a forked
/// child leaves one in memory that it shares with its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// What was asked.
    pub what: &'static str,
    /// The least that it could have been.
    pub low: i64,
    /// The most that it could have been.
    pub high: i64,
    /// What it was.
    pub found: i64,
}

/// What a check comes to.
pub(crate) type Checked<T = ()> = Result<T, Wrong>;

/// That `found` is `expected`.
pub(crate) fn equal(what: &'static str, expected: i64, found: i64) -> Checked {
    within(what, (expected, expected), found)
}

/// That `found` is at least the first and at most the second.
pub(crate) fn within(what: &'static str, (low, high): (i64, i64), found: i64) -> Checked {
    match low <= found && found <= high {
        true => Ok(()),
        false => Err(Wrong { what, low, high, found }),
    }
}

/// That something holds which has no figures of its own.
pub(crate) fn holds(what: &'static str, it_does: bool) -> Checked {
    equal(what, 1, i64::from(it_does))
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wrong { what, low, high, found } = self;
        match low == high {
            true => write!(f, "{what}: expected {low}, found {found}"),
            false => write!(f, "{what}: expected {low} to {high}, found {found}"),
        }
    }
}

/// Who found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finder {
    /// The thread in that slot.
    Worker(usize),
    /// A signal handler on the thread in that slot.
    Handler(usize),
    /// A forked child.
    Child,
    /// The account at the end, when nothing ran any more.
    Account,
    /// What watches the thread in that slot.
    Watchdog(usize),
}

impl fmt::Display for Finder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finder::Worker(slot) => write!(f, "worker {slot}"),
            Finder::Handler(slot) => write!(f, "a signal handler on worker {slot}"),
            Finder::Child => f.write_str("a forked child"),
            Finder::Account => f.write_str("the account at the end"),
            Finder::Watchdog(slot) => write!(f, "the watchdog over worker {slot}"),
        }
    }
}

/// Something wrong, where, and who found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The structure, or the part of the run.
    pub structure: &'static str,
    /// Who found it.
    pub finder: Finder,
    /// What was wrong.
    pub wrong: Wrong,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, seen by {}: {}", self.structure, self.finder, self.wrong)
    }
}

/// More would say nothing new.
const KEPT: usize = 16;

/// The first failures of a run. Handlers write to it.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    begun: AtomicUsize,
    kept: [OnceLock<Failure>; KEPT],
}

impl Failures {
    /// Keeps a failure if there is room. Async-signal-safe: each number is drawn once, so the cell
    /// of that number is set by one thread and nobody waits for it.
    pub(crate) fn add(&self, failure: Failure) {
        // SeqCst here and below: whoever sees the number also sees what came before.
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
    fn a_failure_says_what_differs() {
        let wrong = within("a sum", (3, 4), 5).unwrap_err();
        let failure = Failure { structure: "counter", finder: Finder::Worker(2), wrong };
        assert_eq!(
            failure.to_string(),
            "counter, seen by worker 2: a sum: expected 3 to 4, found 5"
        );
        assert!(within("a sum", (3, 5), 5).is_ok());
        assert!(equal("a sum", 3, 4).unwrap_err().to_string().ends_with("expected 3, found 4"));
    }

    #[test]
    fn the_first_failures_are_kept() {
        let failures = Failures::default();
        assert!(failures.all().is_empty());
        for n in 0..2 * KEPT {
            let wrong = Wrong { what: "", low: 0, high: 0, found: n as i64 };
            failures.add(Failure { structure: "", finder: Finder::Child, wrong });
        }
        let found: Vec<i64> = failures.all().iter().map(|failure| failure.wrong.found).collect();
        assert_eq!(found, (0..KEPT as i64).collect::<Vec<_>>());
    }
}

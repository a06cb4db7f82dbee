//! Guards that count what is in progress.

use std::fmt;
use std::sync::Arc;

use super::Counter;

/// Counts as one in a counter until it is dropped; returned by [`Counter::in_flight`].
///
/// It may be dropped on another thread and CPU than it was made on, and while a thread unwinds. The
/// guard of a static counter is `'static`.
#[must_use = "the counter counts down when the guard is dropped"]
pub struct InFlight<'a> {
    counter: &'a Counter,
}

impl<'a> InFlight<'a> {
    pub(super) fn new(counter: &'a Counter) -> InFlight<'a> {
        counter.inc();
        InFlight { counter }
    }

    /// Returns the counter.
    pub fn counter(&self) -> &'a Counter {
        self.counter
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.counter.dec();
    }
}

impl fmt::Debug for InFlight<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight").finish_non_exhaustive()
    }
}

/// Counts as one in a counter in an `Arc`; returned by [`Counter::in_flight_owned`].
///
/// Like [`InFlight`], but it owns a reference to the counter, so it is `'static`. The reference is
/// counted in a word that all CPUs write. A static counter needs no such word.
#[must_use = "the counter counts down when the guard is dropped"]
pub struct OwnedInFlight {
    counter: Arc<Counter>,
}

impl OwnedInFlight {
    pub(super) fn new(counter: Arc<Counter>) -> OwnedInFlight {
        counter.inc();
        OwnedInFlight { counter }
    }

    /// Returns the counter.
    pub fn counter(&self) -> &Arc<Counter> {
        &self.counter
    }
}

impl Drop for OwnedInFlight {
    fn drop(&mut self) {
        self.counter.dec();
    }
}

impl fmt::Debug for OwnedInFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedInFlight").finish_non_exhaustive()
    }
}

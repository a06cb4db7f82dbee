//! Whether a series is shown; `removal` says when it is not.

use std::time::{Duration, Instant};

/// What decides whether a series is shown.
pub(crate) struct Presence {
    /// The value when it was last seen to change, or when the series was hidden.
    value: i64,
    changed: Instant,
    is_hidden: bool,
}

impl Presence {
    pub(crate) fn new() -> Presence {
        Presence { value: 0, changed: Instant::now(), is_hidden: false }
    }

    pub(crate) fn is_hidden(&self) -> bool {
        self.is_hidden
    }

    pub(crate) fn show(&mut self) {
        self.is_hidden = false;
        self.changed = Instant::now();
    }

    pub(crate) fn hide(&mut self, value: i64) {
        self.is_hidden = true;
        self.value = value;
    }

    pub(crate) fn of(value: i64, changed: Instant) -> Presence {
        Presence { value, changed, is_hidden: false }
    }

    pub(crate) fn value(&self) -> i64 {
        self.value
    }

    /// Returns whether the value has not changed for a time.
    pub(crate) fn is_idle(&self, now: Instant, timeout: Duration) -> bool {
        !self.is_hidden && now.saturating_duration_since(self.changed) >= timeout
    }
}

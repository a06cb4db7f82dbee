//! A progress bar on standard error, if that is a terminal.

use std::time::Duration;

use indicatif::{HumanCount, ProgressBar};
use thiscpu_test_support::tool::progress;

use crate::shared::Shared;

/// The bar; hidden unless standard error is a terminal.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    pub(crate) fn new(duration: Duration) -> Self {
        Self(progress::bar(duration.as_millis() as u64))
    }

    /// Shows the elapsed time and the number of operations.
    pub(crate) fn show(&self, elapsed: Duration, shared: &Shared) {
        self.0.set_position(elapsed.as_millis() as u64);
        if !self.0.is_hidden() {
            self.0.set_message(format!("{} operations", HumanCount(shared.progress())));
        }
    }
}

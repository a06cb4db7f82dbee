//! A progress bar on standard error, if that is a terminal.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::shared::Shared;

/// The bar; hidden unless standard error is a terminal.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    pub(crate) fn new(duration: Duration) -> Self {
        let target = if io::stderr().is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(duration.as_millis() as u64), target);
        if let Ok(style) = ProgressStyle::with_template("{bar:24} {percent:>3} %  {msg}") {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// Shows the elapsed time and the number of operations.
    pub(crate) fn show(&self, elapsed: Duration, shared: &Shared) {
        self.0.set_position(elapsed.as_millis() as u64);
        if !self.0.is_hidden() {
            self.0.set_message(format!("{} operations", HumanCount(shared.progress())));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

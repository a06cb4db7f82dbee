//! A progress bar on standard error, if that is a terminal.

use std::io::{self, IsTerminal as _};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::plan::Plan;

/// The bar; on anything but a terminal, nothing.
///
/// It draws only when something begins, never from a thread of its own, so that it takes no time
/// from what is measured.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar as long as `plan`.
    pub(crate) fn new(plan: &Plan) -> Self {
        let target = if io::stderr().is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let steps = plan.cases.iter().map(crate::case::Case::steps).sum();
        let bar = ProgressBar::with_draw_target(Some(steps), target);
        if let Ok(style) = ProgressStyle::with_template("{bar:24} {percent:>3} %  {msg}") {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// Says what begins now, and that it is one more step.
    pub(crate) fn begin(&self, what: String) {
        self.0.set_message(what);
        self.0.inc(1);
    }

    /// Takes the bar away while `print` writes to the same terminal.
    pub(crate) fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }
}

impl Drop for Progress {
    /// Takes the bar away, also when a run fails and something else is to be read there.
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

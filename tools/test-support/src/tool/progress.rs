//! Progress bars on standard error.

use std::io::{self, IsTerminal as _};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};

/// Makes a bar of `steps`, which shows nothing unless standard error is a terminal.
///
/// It fits into any terminal of 20 columns or more, because the message is cut to the width. It
/// draws only when something changes, never from a thread of its own, and disappears when dropped.
pub fn bar(steps: u64) -> ProgressBar {
    let target = match io::stderr().is_terminal() {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    let bar = ProgressBar::with_draw_target(Some(steps), target);
    if let Ok(style) = ProgressStyle::with_template("{bar:10} {percent:>3} % {wide_msg}") {
        bar.set_style(style);
    }
    bar.with_finish(ProgressFinish::AndClear)
}

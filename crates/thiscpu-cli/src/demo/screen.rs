//! What a scene shows while it runs: a bar on a terminal, nothing elsewhere.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};

/// How often a scene looks at what it has so far.
pub(super) const TICK: Duration = Duration::from_millis(100);

/// Calls `look` every [`TICK`] for `length` and shows what it returns, on standard error.
pub(super) fn watch(length: Duration, mut look: impl FnMut() -> String) {
    let begun = Instant::now();
    let bar = ProgressBar::new(length.as_millis() as u64).with_finish(ProgressFinish::AndClear);
    // The message is cut where the terminal is narrower.
    let style = ProgressStyle::with_template("  {bar:10} {wide_msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    while begun.elapsed() < length {
        bar.set_message(look());
        bar.set_position(begun.elapsed().as_millis() as u64);
        std::thread::sleep(TICK.min(length.saturating_sub(begun.elapsed())));
    }
}

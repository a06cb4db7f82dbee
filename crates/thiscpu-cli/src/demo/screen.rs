//! What a scene shows while it runs: a bar on a terminal, nothing elsewhere.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How often a scene looks at what it has so far.
pub(super) const TICK: Duration = Duration::from_millis(100);

/// The progress of one scene, on standard error. Removed when it is dropped.
pub(super) struct Screen {
    bar: ProgressBar,
}

impl Screen {
    pub(super) fn new() -> Screen {
        let bar = ProgressBar::new(1);
        // The message is cut where the terminal is narrower.
        let style = ProgressStyle::with_template("  {bar:10} {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Screen { bar }
    }

    /// Calls `look` every [`TICK`] for `length` and shows what it returns.
    pub(super) fn watch(&self, length: Duration, mut look: impl FnMut() -> String) {
        let begun = Instant::now();
        self.bar.set_length(length.as_millis() as u64);
        self.bar.set_position(0);
        loop {
            let elapsed = begun.elapsed();
            if elapsed >= length {
                return;
            }
            self.bar.set_message(look());
            self.bar.set_position(elapsed.as_millis() as u64);
            std::thread::sleep(TICK.min(length - elapsed));
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

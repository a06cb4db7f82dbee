//! The report of a run with hostile files, as text.

use std::fmt::Write as _;
use std::time::Duration;

use thiscpu_test_support::tool::stop;

use super::plan::Plan;
use super::worker::Tallies;

pub(super) struct Counts {
    /// How many different images were changed.
    pub(super) kinds: usize,
    pub(super) elapsed: Duration,
    pub(super) failure: Option<String>,
}

/// The result of a run.
pub(crate) struct Report {
    text: String,
    has_failed: bool,
}

impl Report {
    pub(super) fn new(plan: &Plan, tallies: &Tallies, counts: &Counts) -> Report {
        let early = if stop::is_requested() { " (ended early, as requested)" } else { "" };
        let lines = [
            ("seconds", format!("{:.1}{early}", counts.elapsed.as_secs_f64())),
            ("seed", plan.seed.to_string()),
            ("kinds of images", counts.kinds.to_string()),
            ("images", tallies.images().to_string()),
            ("refused", tallies.refused().to_string()),
            ("without an error", tallies.used().to_string()),
            (
                "result",
                match &counts.failure {
                    None => "each call ended with a value or an error".to_owned(),
                    Some(why) => format!("FAILED, with seed {}: {why}", plan.seed),
                },
            ),
        ];
        let mut text = String::new();
        for (label, value) in lines {
            let _ = writeln!(text, "{label:<22} {value}");
        }
        Report { text, has_failed: counts.failure.is_some() }
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed
    }

    pub(crate) fn text(&self) -> &str {
        self.text.trim_end()
    }
}

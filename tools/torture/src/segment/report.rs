//! The report of a run with processes, as text.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use thiscpu_test_support::tool::stop;

use super::Plan;
use super::witness::{Statement, Witness};

/// What the auditor has done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) kills: u64,
    pub(super) stops: u64,
    pub(super) audits: u64,
    pub(super) rounds: u64,
    /// The longest time until all units were back after all workers had ended.
    pub(super) longest_return: Duration,
}

/// The result of a run.
pub(crate) struct Report {
    text: String,
    has_failed: bool,
}

impl Report {
    pub(super) fn new(
        plan: &Plan,
        witness: &Witness,
        counts: &Counts,
        elapsed: Duration,
        failures: &[String],
    ) -> Report {
        let all = |word: fn(&Statement) -> &AtomicU64| {
            witness.statements.iter().map(move |it| word(it).load(Relaxed))
        };
        let ms = |us: u64| format!("{:.1} ms", us as f64 / 1e3);
        let early = if stop::is_requested() { " (ended early, as requested)" } else { "" };
        let longest_wait = all(|it| &it.longest_wait).max().unwrap_or(0);
        let lines = [
            ("seconds", format!("{:.1}{early}", elapsed.as_secs_f64())),
            ("seed", plan.seed.to_string()),
            ("processes started", witness.started.load(Relaxed).to_string()),
            ("execs", witness.executed.load(Relaxed).to_string()),
            ("kills", counts.kills.to_string()),
            ("stops", counts.stops.to_string()),
            ("operations", all(|it| &it.operations).sum::<u64>().to_string()),
            ("refusals", all(|it| &it.refusals).sum::<u64>().to_string()),
            ("waits", all(|it| &it.waits).sum::<u64>().to_string()),
            ("longest wait", ms(longest_wait)),
            ("most units held", witness.held_max.load(Relaxed).to_string()),
            ("audits", counts.audits.to_string()),
            ("rounds", counts.rounds.to_string()),
            ("longest return", ms(counts.longest_return.as_micros() as u64)),
            (
                "result",
                match failures {
                    [] => "every unit is accounted for".to_owned(),
                    _ => format!("FAILED, with seed {}", plan.seed),
                },
            ),
        ];
        let mut text = String::new();
        for (label, value) in lines {
            let _ = writeln!(text, "{label:<22} {value}");
        }
        for failure in failures {
            let _ = writeln!(text, "{:<22} {failure}", "");
        }
        Report { text, has_failed: !failures.is_empty() }
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed
    }

    pub(crate) fn text(&self) -> &str {
        self.text.trim_end()
    }
}

//! The report of a server's day, as text.

use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use thiscpu_test_support::tool::stop;

use super::acts::ACTS;
use super::{Plan, Server};
use crate::violation::Failure;

/// The result of a run.
pub(crate) struct Report {
    plan: Plan,
    elapsed: Duration,
    calls: u64,
    children: u64,
    played: Vec<(&'static str, u64)>,
    failures: Vec<Failure>,
}

impl Report {
    pub(super) fn new(plan: &Plan, server: &Server, elapsed: Duration) -> Report {
        let played = ACTS.iter().zip(&server.played);
        Report {
            plan: *plan,
            elapsed,
            calls: server.heap.calls(),
            children: server.children.load(Relaxed),
            played: played.map(|(act, times)| (act.name, times.load(Relaxed))).collect(),
            failures: server.failures.all(),
        }
    }

    pub(crate) fn has_failed(&self) -> bool {
        !self.failures.is_empty()
    }

    pub(crate) fn to_text(&self, tier: &str) -> String {
        let mut text = String::new();
        let mut line = |label: &str, value: String| {
            let _ = writeln!(text, "{label:<22} {value}");
        };
        line("tier", tier.to_owned());
        let early = if stop::is_requested() { " (ended early, as requested)" } else { "" };
        line("seconds", format!("{:.1}{early}", self.elapsed.as_secs_f64()));
        line("seed", self.plan.seed.to_string());
        line("calls", self.calls.to_string());
        line("children", self.children.to_string());
        line("acts", self.played.iter().map(|(_, times)| times).sum::<u64>().to_string());
        for (name, times) in &self.played {
            line(&format!("  {name}"), times.to_string());
        }
        match self.has_failed() {
            false => line("result", "every block is accounted for".to_owned()),
            true => line("result", format!("FAILED, with seed {}", self.plan.seed)),
        }
        self.failures.iter().for_each(|failure| line("", failure.to_string()));
        text
    }
}

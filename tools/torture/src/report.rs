//! The report of a run, as text and as JSON.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use serde_json::{Map, Value, json};
use thiscpu_test_support::{memory, tool::stop};

use crate::plan::Plan;
use crate::shared::{Shared, Slot};
use crate::violation::{Failure, Finder, Violation};

/// The result of a run.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    plan: Plan,
    elapsed: Duration,
    interrupted: bool,
    ops: Vec<(&'static str, u64)>,
    /// Other counts, by their keys.
    counts: Vec<(&'static str, u64)>,
    failures: Vec<Failure>,
}

impl Report {
    pub(crate) fn new(plan: &Plan, shared: &Shared, elapsed: Duration, before: Faults) -> Report {
        let total = |count: &dyn Fn(&Slot) -> &AtomicU64| -> u64 {
            shared.slots.iter().map(|slot| count(slot).load(Relaxed)).sum()
        };
        let names = shared.structures.iter().map(|structure| structure.0).enumerate();
        let faults = Faults::so_far();
        Report {
            plan: *plan,
            elapsed,
            interrupted: stop::is_requested(),
            ops: names.map(|(index, name)| (name, total(&|slot| &slot.ops[index]))).collect(),
            counts: vec![
                ("exact_answers", total(&|slot| &slot.exact)),
                ("probes", total(&|slot| &slot.spins)),
                ("aborts", total(&|slot| &slot.aborts)),
                ("migrations", total(&|slot| &slot.migrations)),
                ("moves", shared.events.moves.load(Relaxed)),
                ("signals", total(&|slot| &slot.signals)),
                ("forks", shared.events.forks.load(Relaxed)),
                ("short_lived_threads", shared.events.short_lived.load(Relaxed)),
                ("faults", faults.minor + faults.major - before.minor - before.major),
                ("major_faults", faults.major - before.major),
            ],
            failures: shared.failures.all(),
        }
    }

    /// Returns this report with a final check that hangs.
    pub(crate) fn with_hung_final_check(mut self) -> Report {
        let (structure, finder) = ("final_check", Finder::FinalCheck);
        self.failures.push(Failure { structure, finder, violation: Violation::HANG });
        self
    }

    pub(crate) fn failures(&self) -> &[Failure] {
        &self.failures
    }

    pub(crate) fn seed(&self) -> u64 {
        self.plan.seed
    }

    pub(crate) fn to_json(&self, tier: &str) -> Value {
        let map = |counts: &[(&str, u64)]| -> Map<String, Value> {
            counts.iter().map(|&(name, count)| (name.to_owned(), count.into())).collect()
        };
        let mut report = map(&self.counts);
        report.insert("tier".into(), tier.into());
        report.insert("seconds".into(), self.elapsed.as_secs_f64().into());
        report.insert("threads".into(), self.plan.threads.into());
        report.insert("seed".into(), self.plan.seed.into());
        report.insert("interrupted".into(), self.interrupted.into());
        report.insert("ops".into(), map(&self.ops).into());
        report.insert("failures".into(), self.failures.iter().map(failure).collect());
        report.into()
    }

    pub(crate) fn to_text(&self, tier: &str) -> String {
        let mut text = String::new();
        let mut line = |label: &str, value: String| {
            let _ = writeln!(text, "{label:<22} {value}");
        };
        line("tier", tier.to_owned());
        line("threads", self.plan.threads.to_string());
        let early = if self.interrupted { " (ended early, as requested)" } else { "" };
        line("seconds", format!("{:.1}{early}", self.elapsed.as_secs_f64()));
        line("seed", self.plan.seed.to_string());
        for (name, count) in &self.counts {
            line(&name.replace('_', " "), count.to_string());
        }
        line("operations", self.ops.iter().map(|(_, ops)| ops).sum::<u64>().to_string());
        for (name, ops) in &self.ops {
            line(&format!("  {name}"), ops.to_string());
        }
        match self.failures.len() {
            0 => line("result", "every unit is accounted for".to_owned()),
            _ => line("result", format!("FAILED, with seed {}", self.plan.seed)),
        }
        self.failures.iter().for_each(|failure| line("", failure.to_string()));
        text
    }
}

fn failure(failure: &Failure) -> Value {
    let Failure { structure, finder, violation } = failure;
    json!({
        "structure": structure,
        "seen_by": finder.to_string(),
        "what": violation.what,
        "expected_min": violation.low,
        "expected_max": violation.high,
        "found": violation.found,
    })
}

/// Counts of this process's page faults.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    minor: u64,
    major: u64,
}

impl Faults {
    pub(crate) fn so_far() -> Faults {
        let usage = memory::usage(libc::RUSAGE_SELF);
        Faults { minor: usage.ru_minflt as u64, major: usage.ru_majflt as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_shows_failures_with_the_seed() {
        let plan = Plan { duration: Duration::ZERO, threads: 1, seed: 42 };
        let shared = Shared::new(&plan);
        let clean = Report::new(&plan, &shared, Duration::ZERO, Faults::so_far());
        assert!(clean.to_text("atomic").contains("every unit is accounted for"));
        let violation = Violation { what: "a sum", low: 1, high: 2, found: 3 };
        shared.fail("counter", Finder::Child, violation);
        let report = Report::new(&plan, &shared, Duration::ZERO, Faults::so_far());
        let text = report.to_text("atomic");
        assert!(text.contains("FAILED, with seed 42"), "{text}");
        assert!(text.contains("expected 1 to 2, found 3"), "{text}");
        let json = report.to_json("atomic");
        assert_eq!(json["failures"][0]["found"], 3);
        assert_eq!(json["seed"], 42);
    }
}

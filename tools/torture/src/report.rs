//! What came of a run, for people and for programs.

use std::fmt::Write as _;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::plan::Plan;
use crate::stop;
use crate::watchdog::HANGS;
use crate::world::{Slot, World};
use crate::wrong::{Failure, Finder};

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Report {
    plan: Plan,
    elapsed: Duration,
    interrupted: bool,
    ops: Vec<(&'static str, u64)>,
    /// What else was counted, by its key.
    counts: Vec<(&'static str, u64)>,
    failures: Vec<Failure>,
}

impl Report {
    pub(crate) fn new(plan: &Plan, world: &World, elapsed: Duration, before: Faults) -> Report {
        let total = |count: fn(&Slot) -> &AtomicU64| -> u64 {
            world.slots.iter().map(|slot| count(slot).load(Relaxed)).sum()
        };
        let of_structure = |index: usize| -> u64 {
            world.slots.iter().map(|slot| slot.ops[index].load(Relaxed)).sum()
        };
        let names = world.structures.iter().map(|structure| structure.name()).enumerate();
        let faults = Faults::so_far();
        Report {
            plan: *plan,
            elapsed,
            interrupted: stop::is_asked(),
            ops: names.map(|(index, name)| (name, of_structure(index))).collect(),
            counts: vec![
                ("exact_answers", total(|slot| &slot.exact)),
                ("probes", total(|slot| &slot.lingers)),
                ("aborts", total(|slot| &slot.aborts)),
                ("migrations", total(|slot| &slot.migrations)),
                ("moves", world.events.moves.load(Relaxed)),
                ("signals", total(|slot| &slot.signals)),
                ("forks", world.events.forks.load(Relaxed)),
                ("short_lived_threads", world.events.short_lived.load(Relaxed)),
                ("faults", faults.minor + faults.major - before.minor - before.major),
                ("major_faults", faults.major - before.major),
            ],
            failures: world.failures.all(),
        }
    }

    /// The same run, if the account at its end hangs.
    pub(crate) fn hung_at_the_end(mut self) -> Report {
        let finder = Finder::Account;
        self.failures.push(Failure { structure: "the_end", finder, wrong: HANGS });
        self
    }

    /// What was wrong; nothing, if all is well.
    #[must_use]
    pub fn failures(&self) -> &[Failure] {
        &self.failures
    }

    /// Where the run's random numbers began.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.plan.seed
    }

    /// One object; its keys stay the same.
    #[must_use]
    pub fn to_json(&self, tier: &str) -> Value {
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

    /// Lines.
    #[must_use]
    pub fn to_text(&self, tier: &str) -> String {
        let mut text = String::new();
        let mut line = |label: &str, value: String| {
            let _ = writeln!(text, "{label:<22} {value}");
        };
        line("tier", tier.to_owned());
        line("threads", self.plan.threads.to_string());
        let early = if self.interrupted { " (ended early, as asked)" } else { "" };
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
            _ => line("result", format!("WRONG, with seed {}", self.plan.seed)),
        }
        self.failures.iter().for_each(|failure| line("", failure.to_string()));
        text
    }
}

fn failure(failure: &Failure) -> Value {
    let Failure { structure, finder, wrong } = failure;
    json!({
        "structure": structure,
        "seen_by": finder.to_string(),
        "what": wrong.what,
        "expected_min": wrong.low,
        "expected_max": wrong.high,
        "found": wrong.found,
    })
}

/// Page faults of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    minor: u64,
    major: u64,
}

impl Faults {
    pub(crate) fn so_far() -> Faults {
        let mut usage = MaybeUninit::zeroed();
        // SAFETY: the structure is valid for writes, and all zeroes is a valid one.
        let usage: libc::rusage = unsafe {
            libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
            usage.assume_init()
        };
        Faults { minor: usage.ru_minflt as u64, major: usage.ru_majflt as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wrong::Wrong;

    #[test]
    fn failures_are_shown_with_the_seed() {
        let plan = Plan { duration: Duration::ZERO, threads: 1, seed: 42 };
        let world = World::new(&plan);
        let sound = Report::new(&plan, &world, Duration::ZERO, Faults::so_far());
        assert!(sound.to_text("atomic").contains("every unit is accounted for"));
        let wrong = Wrong { what: "a sum", low: 1, high: 2, found: 3 };
        world.fail("counter", Finder::Child, wrong);
        let report = Report::new(&plan, &world, Duration::ZERO, Faults::so_far());
        let text = report.to_text("atomic");
        assert!(text.contains("WRONG, with seed 42"), "{text}");
        assert!(text.contains("expected 1 to 2, found 3"), "{text}");
        let json = report.to_json("atomic");
        assert_eq!(json["failures"][0]["found"], 3);
        assert_eq!(json["seed"], 42);
    }
}

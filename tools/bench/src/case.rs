//! A case: one thing measured for several contenders with one number of threads.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use indexmap::IndexMap;
use thiscpu_test_support::tool::stop;

use crate::{
    contenders::Name,
    cpus::Cpus,
    deviations::Deviations,
    kind::Kind,
    metric::{Metric, Reading},
    progress::Progress,
    slice::Interrupted,
    workloads::{Measured, Setting},
};

/// A kind with a number of threads, and the contenders that run it.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) kind: Kind,
    pub(crate) threads: usize,
    pub(crate) contenders: Vec<Name>,
    pub(crate) rounds: u32,
    pub(crate) length: Duration,
    pub(crate) sums_min: u64,
    pub(crate) audited_min: u64,
    pub(crate) is_trial: bool,
}

/// The result of running a case.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) kind: Kind,
    pub(crate) threads: usize,
    pub(crate) contenders: Vec<Name>,
    /// Whether all rounds were measured.
    pub(crate) is_complete: bool,
    /// Each contender's values of each metric, one for each round.
    pub(crate) series: IndexMap<(Name, &'static Metric), Vec<f64>>,
    /// The sums of all rounds, of each contender whose sums were checked.
    pub(crate) deviations: IndexMap<Name, Deviations>,
}

impl Case {
    /// Returns how many measurements [`Case::run`] makes.
    pub(crate) fn steps(&self) -> u64 {
        self.contenders.len() as u64 * u64::from(self.rounds)
    }

    /// Measures every contender once a round.
    ///
    /// So a machine that drifts affects all alike. Every other round has the opposite order, so
    /// that no contender always follows the same other one. With a `limit` there are only as many
    /// rounds as fit into it, but at least one.
    ///
    /// If an end is requested, the outcome has what was measured so far. An error means that a
    /// contender lost an add, or that the system refused a thread, memory or a CPU; a request to
    /// end hides none.
    pub(crate) fn run(&self, progress: &Progress, limit: Option<Duration>) -> Result<Outcome> {
        let cpus = Cpus::allowed()?;
        let mut outcome = Outcome {
            kind: self.kind,
            threads: self.threads,
            contenders: self.contenders.clone(),
            is_complete: true,
            series: IndexMap::new(),
            deviations: IndexMap::new(),
        };
        let (title, began) = (title(self.kind, self.threads), Instant::now());
        for round in 0..self.rounds {
            let is_late = |limit| round > 0 && began.elapsed() / round * (round + 1) > limit;
            if limit.is_some_and(is_late) {
                break;
            }
            let mut order = self.contenders.clone();
            if round % 2 == 1 {
                order.reverse();
            }
            for name in order {
                let setting = Setting {
                    contender: name,
                    cpus: &cpus,
                    threads: self.threads,
                    round,
                    length: self.length,
                    sums_min: self.sums_min,
                    audited_min: self.audited_min,
                    is_trial: self.is_trial,
                    progress,
                };
                progress.begin(format!("{title}: {name}, round {}", round + 1));
                let readings = self.kind.measure(&setting);
                outcome.is_complete &= !stop::is_requested();
                let readings = unless_interrupted(readings);
                let readings = readings.with_context(|| format!("{title}: {name} failed"))?;
                for reading in readings {
                    match reading {
                        Reading::Value(metric, value) => {
                            outcome.series.entry((name, metric)).or_default().push(value);
                        }
                        Reading::Deviations(more) => {
                            outcome.deviations.entry(name).or_default().merge(&more);
                        }
                    }
                }
                if !outcome.is_complete {
                    return Ok(outcome);
                }
            }
        }
        Ok(outcome)
    }
}

/// Returns no readings for a measurement that was cut short; every other error stays one.
///
/// An audit that was cut short has readings: those so far.
fn unless_interrupted(measured: Measured) -> Measured {
    measured.or_else(|why| if why.is::<Interrupted>() { Ok(Vec::new()) } else { Err(why) })
}

/// Returns the name of a case with its number of threads.
pub(crate) fn title(kind: Kind, threads: usize) -> String {
    let plural = if threads == 1 { "" } else { "s" };
    format!("{}, {threads} thread{plural}", kind.title())
}

#[cfg(test)]
mod tests {
    use thiscpu_test_support::{child::assert_holds, tool::stop};

    use super::*;
    use crate::{
        contenders::{budgets, counters, ledgers, registries},
        workloads::{add, budget, commit, fault, ledger, metrics, slowdown, threshold, token},
    };

    /// Loses everything, grants everything, and refuses nothing.
    struct Liar;

    impl counters::Contender for Liar {
        fn try_new() -> Result<Self> {
            Ok(Self)
        }

        fn add(&self, _: i64) {}

        fn sum(&self) -> i64 {
            -7
        }
    }

    impl budgets::Contender for Liar {
        const IS_RIGHT: bool = true;

        fn new(_: u64) -> Self {
            Self
        }

        fn try_acquire(&self, _: u64) -> bool {
            true
        }

        fn release(&self, _: u64) {}

        fn available(&self) -> i64 {
            -7
        }
    }

    impl ledgers::Contender for Liar {
        type Account = ();

        fn new(_: usize) -> Self {
            Self
        }

        fn open(&self) {}

        fn charge(&self, (): &(), _: usize, _: i64) {}

        fn read(&self, (): &(), _: usize) -> i64 {
            -7
        }
    }

    impl registries::Contender for Liar {
        type Handle = ();

        fn new() -> Self {
            Self
        }

        fn counter(&self, _: &str) {}

        fn increment((): &()) {}

        fn scrape(&self) -> String {
            "requests 7".to_owned()
        }
    }

    // A child makes the request to end, which holds for a whole process.
    #[test]
    fn failures_are_reported_although_an_end_is_requested() {
        assert_holds(|| {
            request_end_and_measure();
            true
        });
    }

    fn request_end_and_measure() {
        stop::listen();
        // SAFETY: the handler that was just installed only stores to an atomic.
        unsafe { libc::raise(libc::SIGINT) };
        assert!(stop::is_requested());
        let setting = Setting {
            contender: Name::Nothing,
            cpus: &Cpus::allowed().unwrap(),
            threads: 2,
            round: 0,
            length: Duration::from_secs(600),
            sums_min: 1,
            audited_min: u64::MAX,
            is_trial: true,
            progress: &Progress::new(1, 1),
        };
        let measures: [fn(&Setting<'_>) -> Measured; 13] = [
            add::measure::<Liar>,
            commit::accounting::<Liar>,
            commit::syscalls::<Liar>,
            threshold::measure::<Liar>,
            token::measure::<Liar>,
            slowdown::measure::<Liar>,
            budget::far::<Liar>,
            budget::near::<Liar>,
            budget::exhausted::<Liar>,
            fault::accounting::<Liar>,
            ledger::live::<Liar, 1>,
            ledger::zipf::<Liar>,
            metrics::increment::<Liar>,
        ];
        for (nth, measure) in measures.into_iter().enumerate() {
            let failed = unless_interrupted(measure(&setting));
            assert!(failed.is_err(), "the failure of measure {nth} is lost");
        }
        // A sound contender is only interrupted.
        let sound = unless_interrupted(add::measure::<counters::Atomic>(&setting)).unwrap();
        assert!(sound.is_empty());
    }
}

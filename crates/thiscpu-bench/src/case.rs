//! A case: one thing measured for several contenders with one number of threads.

use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::{
    contenders::Name,
    cpus::Cpus,
    kind::Kind,
    metric::{Metric, Reading},
    workloads::Setting,
};

/// One thing to measure, for all who take part in it.
#[derive(Debug)]
pub struct Case {
    pub(crate) kind: Kind,
    pub(crate) threads: usize,
    pub(crate) contenders: Vec<Name>,
    pub(crate) rounds: u32,
    pub(crate) length: Duration,
    pub(crate) sums_min: u64,
    pub(crate) audited_min: u64,
    pub(crate) is_trial: bool,
}

/// What a case came to.
#[derive(Debug)]
pub struct Outcome {
    pub(crate) kind: Kind,
    pub(crate) threads: usize,
    pub(crate) contenders: Vec<Name>,
    pub(crate) rounds: u32,
    pub(crate) series: Vec<Series>,
}

/// One contender's values of one metric, one for each round.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) contender: Name,
    pub(crate) metric: &'static Metric,
    pub(crate) values: Vec<f64>,
}

impl Case {
    /// How many measurements [`Case::run`] makes.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.contenders.len() as u64 * u64::from(self.rounds)
    }

    /// A short name for people.
    #[must_use]
    pub fn title(&self) -> String {
        title(self.kind, self.threads)
    }

    /// Measures everyone once a round, so that a machine that drifts hits all alike, and in the
    /// opposite order in every other round, so that nobody always comes after the same neighbour.
    /// `announce` hears who comes next, and in which round.
    ///
    /// # Errors
    ///
    /// When a contender loses an add, or the system refuses a thread, memory or a CPU.
    pub fn run(&self, mut announce: impl FnMut(Name, u32)) -> Result<Outcome> {
        let cpus = Cpus::allowed().context("cannot learn which CPUs are allowed")?;
        let mut outcome = Outcome {
            kind: self.kind,
            threads: self.threads,
            contenders: self.contenders.clone(),
            rounds: self.rounds,
            series: Vec::new(),
        };
        for round in 0..self.rounds {
            let setting = Setting {
                cpus: &cpus,
                threads: self.threads,
                round,
                length: self.length,
                sums_min: self.sums_min,
                audited_min: self.audited_min,
                is_trial: self.is_trial,
            };
            let mut order = self.contenders.clone();
            if round % 2 == 1 {
                order.reverse();
            }
            for name in order {
                announce(name, round);
                let readings = self
                    .kind
                    .measure(name, &setting)
                    .with_context(|| format!("{}: {name} failed", self.title()))?;
                readings.into_iter().for_each(|reading| outcome.add(name, &reading));
            }
        }
        Ok(outcome)
    }
}

impl Outcome {
    /// A short name for people.
    #[must_use]
    pub fn title(&self) -> String {
        title(self.kind, self.threads)
    }

    /// One contender's values of one metric, if there are any.
    pub(crate) fn values(&self, contender: Name, metric: &Metric) -> Option<&[f64]> {
        self.series
            .iter()
            .find(|series| series.contender == contender && series.metric == metric)
            .map(|series| series.values.as_slice())
    }

    fn add(&mut self, contender: Name, reading: &Reading) {
        let known = self
            .series
            .iter_mut()
            .find(|series| series.contender == contender && series.metric == reading.metric);
        match known {
            Some(series) => series.values.push(reading.value),
            None => self.series.push(Series {
                contender,
                metric: reading.metric,
                values: vec![reading.value],
            }),
        }
    }
}

fn title(kind: Kind, threads: usize) -> String {
    let space = if kind.case_name().is_empty() { "" } else { " " };
    let plural = if threads == 1 { "" } else { "s" };
    let (workload, case) = (kind.workload(), kind.case_name());
    format!("{workload}{space}{case}, {threads} thread{plural}")
}

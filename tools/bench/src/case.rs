//! A case: one thing measured for several contenders with one number of threads.

use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::{
    contenders::Name,
    cpus::Cpus,
    deviations::Deviations,
    kind::Kind,
    metric::{Metric, Reading},
    workloads::{Setting, Workload},
};

/// One thing to measure, for all who take part in it.
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

/// What a case came to.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) kind: Kind,
    pub(crate) threads: usize,
    pub(crate) contenders: Vec<Name>,
    pub(crate) rounds: u32,
    pub(crate) series: Vec<Series>,
    /// Of those whose sums were looked at, in all rounds.
    pub(crate) deviations: Vec<(Name, Deviations)>,
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
    pub(crate) fn steps(&self) -> u64 {
        self.contenders.len() as u64 * u64::from(self.rounds)
    }

    /// A short name for people.
    pub(crate) fn title(&self) -> String {
        title(self.kind, self.threads)
    }

    /// Measures everyone once a round, so that a machine that drifts hits all alike, and in the
    /// opposite order in every other round, so that nobody always comes after the same neighbour.
    /// `announce` hears who comes next, and in which round.
    ///
    /// # Errors
    ///
    /// When a contender loses an add, or the system refuses a thread, memory or a CPU.
    pub(crate) fn run(&self, mut announce: impl FnMut(Name, u32)) -> Result<Outcome> {
        let cpus = Cpus::allowed().context("cannot learn which CPUs are allowed")?;
        let mut outcome = Outcome {
            kind: self.kind,
            threads: self.threads,
            contenders: self.contenders.clone(),
            rounds: self.rounds,
            series: Vec::new(),
            deviations: Vec::new(),
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
                readings.into_iter().for_each(|reading| outcome.add(name, reading));
            }
        }
        Ok(outcome)
    }
}

impl Outcome {
    /// A short name for people.
    pub(crate) fn title(&self) -> String {
        title(self.kind, self.threads)
    }

    /// Which workload it is of.
    pub(crate) fn workload(&self) -> Workload {
        self.kind.workload()
    }

    /// Which case of the workload; empty if that has only one.
    pub(crate) fn case(&self) -> &'static str {
        self.kind.case_name()
    }

    /// What is done in it, in a sentence without its full stop.
    pub(crate) fn what(&self) -> &'static str {
        self.kind.what()
    }

    /// With how many threads.
    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// Who took part, in the order they are shown.
    pub(crate) fn contenders(&self) -> &[Name] {
        &self.contenders
    }

    /// The name of the metric that a picture of it shows; none where there is nothing to compare.
    pub(crate) fn drawn(&self) -> Option<&'static str> {
        self.kind.drawn().map(|metric| metric.name)
    }

    /// How far each sum was from what can be true, of those whose sums were looked at.
    pub(crate) fn deviations(&self) -> &[(Name, Deviations)] {
        &self.deviations
    }

    /// One contender's values of one metric, if there are any.
    pub(crate) fn values(&self, contender: Name, metric: &Metric) -> Option<&[f64]> {
        self.series
            .iter()
            .find(|series| series.contender == contender && series.metric == metric)
            .map(|series| series.values.as_slice())
    }

    fn add(&mut self, contender: Name, reading: Reading) {
        match reading {
            Reading::Value(metric, value) => self.add_value(contender, metric, value),
            Reading::Deviations(deviations) => self.add_deviations(contender, *deviations),
        }
    }

    fn add_value(&mut self, contender: Name, metric: &'static Metric, value: f64) {
        let known = self
            .series
            .iter_mut()
            .find(|series| series.contender == contender && series.metric == metric);
        match known {
            Some(series) => series.values.push(value),
            None => self.series.push(Series { contender, metric, values: vec![value] }),
        }
    }

    fn add_deviations(&mut self, contender: Name, deviations: Deviations) {
        match self.deviations.iter_mut().find(|(name, _)| *name == contender) {
            Some((_, known)) => known.merge(&deviations),
            None => self.deviations.push((contender, deviations)),
        }
    }
}

fn title(kind: Kind, threads: usize) -> String {
    let space = if kind.case_name().is_empty() { "" } else { " " };
    let plural = if threads == 1 { "" } else { "s" };
    let (workload, case) = (kind.workload(), kind.case_name());
    format!("{workload}{space}{case}, {threads} thread{plural}")
}

//! A case: one thing measured for several contenders with one number of threads.

use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::{
    contenders::{
        Name,
        budgets::{self, for_budget},
        counters::{self, for_counter},
    },
    cpus::Cpus,
    metric::{Metric, Reading},
    workloads::{
        Measured, Setting, Workload, add, commit, memory, nospace, slowdown, threshold, token,
    },
};

/// What is measured. A workload is one of these or two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Add,
    Accounting,
    Syscalls,
    Token,
    Slowdown,
    Threshold,
    Memory,
    Far,
    Near,
    Swing,
    Full,
}

impl Kind {
    pub(crate) const ALL: [Self; 11] = [
        Self::Add,
        Self::Accounting,
        Self::Syscalls,
        Self::Token,
        Self::Slowdown,
        Self::Threshold,
        Self::Memory,
        Self::Far,
        Self::Near,
        Self::Swing,
        Self::Full,
    ];

    pub(crate) const fn workload(self) -> Workload {
        match self {
            Self::Add => Workload::Add,
            Self::Accounting | Self::Syscalls => Workload::Commit,
            Self::Token | Self::Slowdown => Workload::Sum,
            Self::Threshold => Workload::Threshold,
            Self::Memory => Workload::Memory,
            Self::Far | Self::Near | Self::Swing | Self::Full => Workload::Nospace,
        }
    }

    /// The name that tells the kinds of one workload apart.
    pub(crate) const fn case_name(self) -> &'static str {
        match self {
            Self::Add | Self::Threshold | Self::Memory => "",
            Self::Accounting => "accounting",
            Self::Syscalls => "syscalls",
            Self::Token => "token",
            Self::Slowdown => "slowdown",
            Self::Far => "far",
            Self::Near => "near",
            Self::Swing => "swing",
            Self::Full => "full",
        }
    }

    /// The numbers of threads it runs with when `asked` names none, or in spite of it.
    pub(crate) fn threads(self, asked: &[usize]) -> Vec<usize> {
        let by_default: &[usize] = match self {
            Self::Add | Self::Far => &[1, 2],
            Self::Accounting
            | Self::Syscalls
            | Self::Threshold
            | Self::Near
            | Self::Swing
            | Self::Full => &[2, 16],
            Self::Token => &[4],
            Self::Slowdown => return vec![slowdown::ADDERS],
            Self::Memory => return vec![memory::THREADS],
        };
        if asked.is_empty() { by_default } else { asked }.to_vec()
    }

    /// Who of `asked` takes part, and whom they are measured against.
    pub(crate) fn contenders(self, asked: &[Name]) -> Vec<Name> {
        let who = match self {
            Self::Memory => &memory::CONTENDERS,
            Self::Far | Self::Near | Self::Swing | Self::Full => budgets::ALL,
            _ => counters::ALL,
        };
        let mut names: Vec<Name> =
            asked.iter().copied().filter(|name| who.contains(name)).collect();
        if self == Self::Syscalls {
            names.insert(0, Name::Nothing);
        }
        names
    }

    /// A million counters are measured once: their number is repetition enough.
    pub(crate) const fn rounds(self, asked: u32) -> u32 {
        match self {
            Self::Memory => 1,
            _ => asked,
        }
    }

    fn measure(self, name: Name, setting: &Setting<'_>) -> Measured {
        match self {
            Self::Add => for_counter!(name, C => add::measure::<C>(setting)),
            Self::Accounting => for_counter!(name, C => commit::accounting::<C>(setting)),
            Self::Syscalls => for_counter!(name, C => commit::syscalls::<C>(setting)),
            Self::Token => for_counter!(name, C => token::measure::<C>(setting)),
            Self::Slowdown => for_counter!(name, C => slowdown::measure::<C>(setting)),
            Self::Threshold => for_counter!(name, C => threshold::measure::<C>(setting)),
            Self::Memory => memory::measure(name, setting),
            Self::Far => for_budget!(name, C => nospace::far::<C>(setting)),
            Self::Near => for_budget!(name, C => nospace::near::<C>(setting)),
            Self::Swing => for_budget!(name, C => nospace::swing::<C>(setting)),
            Self::Full => for_budget!(name, C => nospace::full::<C>(setting)),
        }
    }
}

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

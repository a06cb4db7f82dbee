//! A case: one thing measured for several contenders with one number of threads.

use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::{
    contenders::{
        Name,
        budgets::{self, for_budget},
        counters::{self, for_counter},
        ledgers::{self, for_ledger},
    },
    cpus::Cpus,
    metric::{Metric, Reading},
    workloads::{
        Measured, Setting, Workload, add, commit, fault,
        memory::{self, Many},
        nospace, reports, slowdown, tenancy, tenants, threshold, token,
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
    MemoryOfAccounts,
    Far,
    Near,
    Swing,
    Full,
    FaultAccounting,
    FaultSyscalls,
    One,
    Live8,
    Live64,
    Live512,
    Zipf,
    Report,
    AuditOfAccounts,
}

impl Kind {
    pub(crate) const ALL: [Self; 21] = [
        Self::Add,
        Self::Accounting,
        Self::Syscalls,
        Self::Token,
        Self::Slowdown,
        Self::Threshold,
        Self::Memory,
        Self::MemoryOfAccounts,
        Self::Far,
        Self::Near,
        Self::Swing,
        Self::Full,
        Self::FaultAccounting,
        Self::FaultSyscalls,
        Self::One,
        Self::Live8,
        Self::Live64,
        Self::Live512,
        Self::Zipf,
        Self::Report,
        Self::AuditOfAccounts,
    ];

    pub(crate) const fn workload(self) -> Workload {
        match self {
            Self::Add => Workload::Add,
            Self::Accounting | Self::Syscalls => Workload::Commit,
            Self::Token | Self::Slowdown => Workload::Sum,
            Self::Threshold => Workload::Threshold,
            Self::Memory | Self::MemoryOfAccounts => Workload::Memory,
            Self::Far | Self::Near | Self::Swing | Self::Full => Workload::Nospace,
            Self::FaultAccounting | Self::FaultSyscalls => Workload::Fault,
            Self::One
            | Self::Live8
            | Self::Live64
            | Self::Live512
            | Self::Zipf
            | Self::Report
            | Self::AuditOfAccounts => Workload::Tenants,
        }
    }

    /// The name that tells the kinds of one workload apart.
    pub(crate) const fn case_name(self) -> &'static str {
        match self {
            Self::Add | Self::Threshold | Self::Memory => "",
            Self::MemoryOfAccounts => "accounts",
            Self::Accounting | Self::FaultAccounting => "accounting",
            Self::Syscalls | Self::FaultSyscalls => "syscalls",
            Self::Token => "token",
            Self::Slowdown => "slowdown",
            Self::Far => "far",
            Self::Near => "near",
            Self::Swing => "swing",
            Self::Full => "full",
            Self::One => "one",
            Self::Live8 => "live-8",
            Self::Live64 => "live-64",
            Self::Live512 => "live-512",
            Self::Zipf => "zipf",
            Self::Report => "report",
            Self::AuditOfAccounts => "audit",
        }
    }

    /// The numbers of threads it runs with when `asked` names none, or in spite of it.
    pub(crate) fn threads(self, asked: &[usize]) -> Vec<usize> {
        let by_default: &[usize] = match self {
            Self::Add | Self::Far | Self::One => &[1, 2],
            Self::Live8 | Self::Live64 | Self::Live512 | Self::Zipf => &[2],
            Self::Accounting
            | Self::Syscalls
            | Self::Threshold
            | Self::Near
            | Self::Swing
            | Self::Full
            | Self::FaultAccounting
            | Self::FaultSyscalls => &[2, 16],
            Self::AuditOfAccounts => &[2, 4, 16],
            Self::Token => &[4],
            Self::Slowdown => return vec![slowdown::ADDERS],
            Self::Memory | Self::MemoryOfAccounts => return vec![memory::THREADS],
            Self::Report => return vec![reports::THREADS],
        };
        if asked.is_empty() { by_default } else { asked }.to_vec()
    }

    /// Who of `asked` takes part, and whom they are measured against.
    pub(crate) fn contenders(self, asked: &[Name]) -> Vec<Name> {
        let who = match (self, self.workload()) {
            (Self::MemoryOfAccounts, _) => Many::Accounts.contenders(),
            (Self::Report | Self::AuditOfAccounts, _) => &[Name::ThisCpu],
            (_, Workload::Memory) => Many::Counters.contenders(),
            (_, Workload::Nospace) => budgets::ALL,
            (_, Workload::Fault | Workload::Tenants) => ledgers::ALL,
            _ => counters::ALL,
        };
        let mut names: Vec<Name> =
            asked.iter().copied().filter(|name| who.contains(name)).collect();
        let has_baseline = matches!(self, Self::Syscalls | Self::FaultSyscalls);
        if has_baseline && !names.is_empty() {
            names.insert(0, Name::Nothing);
        }
        names
    }

    /// A million counters or accounts are measured once: their number is repetition enough.
    pub(crate) const fn rounds(self, asked: u32) -> u32 {
        match self {
            Self::Memory | Self::MemoryOfAccounts => 1,
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
            Self::Memory => memory::measure(Many::Counters, name, setting),
            Self::MemoryOfAccounts => memory::measure(Many::Accounts, name, setting),
            Self::Far => for_budget!(name, C => nospace::far::<C>(setting)),
            Self::Near => for_budget!(name, C => nospace::near::<C>(setting)),
            Self::Swing => for_budget!(name, C => nospace::swing::<C>(setting)),
            Self::Full => for_budget!(name, C => nospace::full::<C>(setting)),
            Self::FaultAccounting => for_ledger!(name, C => fault::accounting::<C>(setting)),
            Self::FaultSyscalls => for_ledger!(name, C => fault::syscalls::<C>(setting)),
            Self::One => for_ledger!(name, C => tenants::live::<C, 1>(setting)),
            Self::Live8 => for_ledger!(name, C => tenants::live::<C, 8>(setting)),
            Self::Live64 => for_ledger!(name, C => tenants::live::<C, 64>(setting)),
            Self::Live512 => for_ledger!(name, C => tenants::live::<C, 512>(setting)),
            Self::Zipf => for_ledger!(name, C => tenants::zipf::<C>(setting)),
            Self::Report => reports::measure(setting),
            Self::AuditOfAccounts => tenancy::audit(setting),
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

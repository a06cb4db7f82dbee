//! The kinds of things that are measured: how each is named, who takes part, and what measures it.

use crate::{
    contenders::{
        Name,
        budgets::{self, for_budget},
        counters::{self, for_counter},
        ledgers::{self, for_ledger},
        registries::{self, for_registry},
    },
    metric::{
        ADDERS_SLOWDOWN, Metric, RESIDENT_BYTES, RESIDENT_PER_ACCOUNT, RESIDENT_PER_COUNTER,
        TIME_PER_OP, TIME_PER_REPORT, TIME_PER_SCRAPE, TIME_PER_SUM,
    },
    workloads::{
        Measured, Setting, Workload, add, commit, fault,
        memory::{self, Many},
        metrics, nospace,
        object::{self, Scene},
        reports, slowdown, tenancy, tenants, threshold, token,
    },
};

/// What is measured. A workload is one of these or several.
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
    Increment,
    Scrape,
    Object(Scene),
}

impl Kind {
    const OF_COUNTING: [Self; 23] = [
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
        Self::Increment,
        Self::Scrape,
    ];

    /// Every kind, in the order they run within their workloads.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        Self::OF_COUNTING.into_iter().chain(Scene::ALL.map(Self::Object))
    }

    /// Whether it runs when nobody says what to run, so that everything at once does not take too long.
    pub(crate) const fn is_in_full_run(self) -> bool {
        match self {
            Self::Object(scene) => scene.is_in_full_run(),
            _ => true,
        }
    }

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
            Self::Increment | Self::Scrape => Workload::Metrics,
            Self::Object(_) => Workload::Object,
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
            Self::Increment => "increment",
            Self::Scrape => "scrape",
            Self::Object(scene) => scene.name(),
        }
    }

    /// The numbers of threads it runs with when `asked` names none, or in spite of it.
    pub(crate) fn threads(self, asked: &[usize]) -> Vec<usize> {
        let by_default: &[usize] = match self {
            Self::Add | Self::Far | Self::One | Self::Increment => &[1, 2],
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
            Self::Scrape => return vec![metrics::SCRAPE_THREADS],
            Self::Object(scene) => return scene.threads(asked),
        };
        if asked.is_empty() { by_default } else { asked }.to_vec()
    }

    /// Who of `asked` takes part, and whom they are measured against.
    pub(crate) fn contenders(self, asked: &[Name]) -> Vec<Name> {
        let who = match (self, self.workload()) {
            (Self::Object(scene), _) => scene.contenders(),
            (Self::MemoryOfAccounts, _) => Many::Accounts.contenders(),
            (Self::Report | Self::AuditOfAccounts, _) => &[Name::ThisCpu],
            (_, Workload::Memory) => Many::Counters.contenders(),
            (_, Workload::Nospace) => budgets::ALL,
            (_, Workload::Metrics) => registries::ALL,
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

    /// Whether somebody takes part in it.
    pub(crate) fn has(self, name: Name) -> bool {
        self.contenders(&[name]).contains(&name)
    }

    /// A million counters or accounts are measured once: their number is repetition enough.
    pub(crate) const fn rounds(self, asked: u32) -> u32 {
        match self {
            Self::Memory | Self::MemoryOfAccounts => 1,
            _ => asked,
        }
    }

    /// The figure by which contenders are compared.
    pub(crate) const fn compared(self) -> &'static Metric {
        match self {
            Self::Object(scene) if scene.is_idle() => &RESIDENT_BYTES,
            Self::Scrape => &TIME_PER_SCRAPE,
            _ => &TIME_PER_OP,
        }
    }

    /// The figure that a picture of it shows; none where all that counts is that nothing is wrong.
    pub(crate) const fn drawn(self) -> Option<&'static Metric> {
        match self {
            Self::Token => Some(&TIME_PER_SUM),
            Self::Slowdown => Some(&ADDERS_SLOWDOWN),
            Self::Memory => Some(&RESIDENT_PER_COUNTER),
            Self::MemoryOfAccounts => Some(&RESIDENT_PER_ACCOUNT),
            Self::Report => Some(&TIME_PER_REPORT),
            Self::AuditOfAccounts => None,
            _ => Some(self.compared()),
        }
    }

    /// Measures one contender once.
    pub(crate) fn measure(self, name: Name, setting: &Setting<'_>) -> Measured {
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
            Self::Increment => for_registry!(name, C => metrics::increment::<C>(setting)),
            Self::Scrape => for_registry!(name, C => metrics::scrape::<C>(setting)),
            Self::Object(scene) => object::measure(scene, name, setting),
        }
    }
}

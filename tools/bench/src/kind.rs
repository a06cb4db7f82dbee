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
        TIME_PER_OP, TIME_PER_SCRAPE, TIME_PER_SNAPSHOT, TIME_PER_SUM,
    },
    workloads::{
        Measured, Setting, Workload, add,
        alloc::{self, AllocCase},
        budget, commit, fault,
        ledger::{self, audit, snapshot_all},
        memory::{self, Many},
        metrics, slowdown, threshold, token,
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
    MemoryAccounts,
    Far,
    Near,
    Oscillate,
    Exhausted,
    FaultAccounting,
    FaultSyscalls,
    Single,
    WorkingSet8,
    WorkingSet64,
    WorkingSet512,
    Zipf,
    SnapshotAll,
    Audit,
    Increment,
    Scrape,
    Alloc(AllocCase),
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
        Self::MemoryAccounts,
        Self::Far,
        Self::Near,
        Self::Oscillate,
        Self::Exhausted,
        Self::FaultAccounting,
        Self::FaultSyscalls,
        Self::Single,
        Self::WorkingSet8,
        Self::WorkingSet64,
        Self::WorkingSet512,
        Self::Zipf,
        Self::SnapshotAll,
        Self::Audit,
        Self::Increment,
        Self::Scrape,
    ];

    /// Every kind, in the order they run within their workloads.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        Self::OF_COUNTING.into_iter().chain(AllocCase::ALL.map(Self::Alloc))
    }

    /// Whether it runs when nobody says what to run, so that everything at once does not take too long.
    pub(crate) const fn runs_by_default(self) -> bool {
        match self {
            Self::Alloc(case) => case.runs_by_default(),
            _ => true,
        }
    }

    pub(crate) const fn workload(self) -> Workload {
        match self {
            Self::Add => Workload::Add,
            Self::Accounting | Self::Syscalls => Workload::Commit,
            Self::Token | Self::Slowdown => Workload::Sum,
            Self::Threshold => Workload::Threshold,
            Self::Memory | Self::MemoryAccounts => Workload::Memory,
            Self::Far | Self::Near | Self::Oscillate | Self::Exhausted => Workload::Budget,
            Self::FaultAccounting | Self::FaultSyscalls => Workload::Fault,
            Self::Single
            | Self::WorkingSet8
            | Self::WorkingSet64
            | Self::WorkingSet512
            | Self::Zipf
            | Self::SnapshotAll
            | Self::Audit => Workload::Ledger,
            Self::Increment | Self::Scrape => Workload::Metrics,
            Self::Alloc(_) => Workload::Alloc,
        }
    }

    /// The name that tells the kinds of one workload apart.
    pub(crate) const fn case_name(self) -> &'static str {
        match self {
            Self::Add | Self::Threshold | Self::Memory => "",
            Self::MemoryAccounts => "accounts",
            Self::Accounting | Self::FaultAccounting => "accounting",
            Self::Syscalls | Self::FaultSyscalls => "syscalls",
            Self::Token => "token",
            Self::Slowdown => "slowdown",
            Self::Far => "far",
            Self::Near => "near",
            Self::Oscillate => "oscillate",
            Self::Exhausted => "exhausted",
            Self::Single => "single",
            Self::WorkingSet8 => "working-set-8",
            Self::WorkingSet64 => "working-set-64",
            Self::WorkingSet512 => "working-set-512",
            Self::Zipf => "zipf",
            Self::SnapshotAll => "snapshot-all",
            Self::Audit => "audit",
            Self::Increment => "increment",
            Self::Scrape => "scrape",
            Self::Alloc(case) => case.name(),
        }
    }

    /// The numbers of threads it runs with when `asked` names none, or in spite of it.
    pub(crate) fn threads(self, asked: &[usize]) -> Vec<usize> {
        let by_default: &[usize] = match self {
            Self::Add | Self::Far | Self::Single | Self::Increment => &[1, 2],
            Self::WorkingSet8 | Self::WorkingSet64 | Self::WorkingSet512 | Self::Zipf => &[2],
            Self::Accounting
            | Self::Syscalls
            | Self::Threshold
            | Self::Near
            | Self::Oscillate
            | Self::Exhausted
            | Self::FaultAccounting
            | Self::FaultSyscalls => &[2, 16],
            Self::Audit => &[2, 4, 16],
            Self::Token => &[4],
            Self::Slowdown => return vec![slowdown::ADDERS],
            Self::Memory | Self::MemoryAccounts => return vec![memory::THREADS],
            Self::SnapshotAll => return vec![snapshot_all::THREADS],
            Self::Scrape => return vec![metrics::SCRAPE_THREADS],
            Self::Alloc(case) => return case.threads(asked),
        };
        if asked.is_empty() { by_default } else { asked }.to_vec()
    }

    /// Who of `asked` takes part, and whom they are measured against.
    pub(crate) fn contenders(self, asked: &[Name]) -> Vec<Name> {
        let who = match (self, self.workload()) {
            (Self::Alloc(case), _) => case.contenders(),
            (Self::MemoryAccounts, _) => Many::Accounts.contenders(),
            (Self::SnapshotAll | Self::Audit, _) => &[Name::ThisCpu],
            (_, Workload::Memory) => Many::Counters.contenders(),
            (_, Workload::Budget) => budgets::ALL,
            (_, Workload::Metrics) => registries::ALL,
            (_, Workload::Fault | Workload::Ledger) => ledgers::ALL,
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
            Self::Memory | Self::MemoryAccounts => 1,
            _ => asked,
        }
    }

    /// The figure by which contenders are compared.
    pub(crate) const fn compared(self) -> &'static Metric {
        match self {
            Self::Alloc(case) if case.measures_memory() => &RESIDENT_BYTES,
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
            Self::MemoryAccounts => Some(&RESIDENT_PER_ACCOUNT),
            Self::SnapshotAll => Some(&TIME_PER_SNAPSHOT),
            Self::Audit => None,
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
            Self::MemoryAccounts => memory::measure(Many::Accounts, name, setting),
            Self::Far => for_budget!(name, C => budget::far::<C>(setting)),
            Self::Near => for_budget!(name, C => budget::near::<C>(setting)),
            Self::Oscillate => for_budget!(name, C => budget::oscillate::<C>(setting)),
            Self::Exhausted => for_budget!(name, C => budget::exhausted::<C>(setting)),
            Self::FaultAccounting => for_ledger!(name, C => fault::accounting::<C>(setting)),
            Self::FaultSyscalls => for_ledger!(name, C => fault::syscalls::<C>(setting)),
            Self::Single => for_ledger!(name, C => ledger::live::<C, 1>(setting)),
            Self::WorkingSet8 => for_ledger!(name, C => ledger::live::<C, 8>(setting)),
            Self::WorkingSet64 => for_ledger!(name, C => ledger::live::<C, 64>(setting)),
            Self::WorkingSet512 => for_ledger!(name, C => ledger::live::<C, 512>(setting)),
            Self::Zipf => for_ledger!(name, C => ledger::zipf::<C>(setting)),
            Self::SnapshotAll => snapshot_all::measure(setting),
            Self::Audit => audit::audit(setting),
            Self::Increment => for_registry!(name, C => metrics::increment::<C>(setting)),
            Self::Scrape => for_registry!(name, C => metrics::scrape::<C>(setting)),
            Self::Alloc(case) => alloc::measure(case, name, setting),
        }
    }
}

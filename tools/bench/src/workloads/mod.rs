//! What the contenders are made to do, each in its own file.

use std::{fmt, str::FromStr, time::Duration};

use crate::{
    contenders::{Padded, counters::Contender},
    cpus::Cpus,
    metric::Reading,
};

pub(crate) mod add;
pub(crate) mod alloc;
pub(crate) mod budget;
pub(crate) mod commit;
pub(crate) mod fault;
pub(crate) mod ledger;
pub(crate) mod memory;
pub(crate) mod metrics;
pub(crate) mod slowdown;
pub(crate) mod threshold;
pub(crate) mod token;

/// The name of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    /// Every thread adds 1.
    Add,
    /// Memory is mapped and unmapped, and accounted for.
    Commit,
    /// Sums are taken while a token is passed, and while adders run flat out.
    Sum,
    /// Every thread compares with a limit that the value hovers at.
    Threshold,
    /// Many counters, or accounts, are made and used.
    Memory,
    /// Blocks are allocated from a shared amount and freed, far from its limit, near it and at it.
    Budget,
    /// Page faults are accounted for.
    Fault,
    /// Accounts of many owners are charged.
    Ledger,
    /// Metrics are incremented and scraped.
    Metrics,
    /// Objects are allocated and freed.
    Alloc,
}

impl Workload {
    /// Every workload, in the order they run.
    pub(crate) const ALL: [Self; 10] = [
        Self::Add,
        Self::Commit,
        Self::Sum,
        Self::Threshold,
        Self::Memory,
        Self::Budget,
        Self::Fault,
        Self::Ledger,
        Self::Metrics,
        Self::Alloc,
    ];

    /// The name as it is typed and printed.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Commit => "commit",
            Self::Sum => "sum",
            Self::Threshold => "threshold",
            Self::Memory => "memory",
            Self::Budget => "budget",
            Self::Fault => "fault",
            Self::Ledger => "ledger",
            Self::Metrics => "metrics",
            Self::Alloc => "alloc",
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|workload| workload.as_str() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::as_str).join(", ");
            format!("no workload has that name; there are {names}")
        })
    }
}

/// Under which conditions one contender is measured once.
pub(crate) struct Setting<'a> {
    pub(crate) cpus: &'a Cpus,
    pub(crate) threads: usize,
    pub(crate) round: u32,
    pub(crate) length: Duration,
    /// The least number of sums `token` takes, however long that lasts (within reason).
    pub(crate) sums_min: u64,
    /// The least number of calls that are audited in a slice for that.
    pub(crate) audited_min: u64,
    /// Whether this is a run that only tries whether everything works.
    pub(crate) is_trial: bool,
}

/// What measuring one contender once gives: one value for each of the case's metrics.
pub(crate) type Measured = anyhow::Result<Vec<Reading>>;

/// A counter for all threads of a slice, on cache lines of its own, so that nothing of the workload
/// shares a line with it.
pub(crate) fn shared_counter<C: Contender>() -> anyhow::Result<Padded<C>> {
    C::try_new().map(Padded::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for workload in Workload::ALL {
            assert_eq!(workload.to_string().parse(), Ok(workload));
        }
        let message = "adds".parse::<Workload>().unwrap_err();
        for workload in Workload::ALL {
            assert!(message.contains(workload.as_str()), "{message}");
        }
    }
}

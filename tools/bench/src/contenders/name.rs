//! The names of all contenders.

use std::{fmt, str::FromStr};

use anyhow::ensure;

use super::counters::{self, Contender as _};

/// A contender's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// One shared word.
    Atomic,
    /// Lanes folded into a total under a spinlock.
    SpinlockFold,
    /// Lanes folded into an atomic total, sums announced.
    Dumazet,
    /// Lanes folded into an atomic total, adders and sums behind gates.
    LiGate,
    /// The contatori crate.
    Striped,
    /// The floor: the least a restartable section can do.
    Section,
    /// One shared word, by compare-exchange.
    AtomicCas,
    /// The kernel's counter, compared before and after.
    CompareTwice,
    /// The kernel's counter, compared before.
    CompareOnce,
    /// The kernel's counter, added to up to a limit.
    LimitedAdd,
    /// The tokio crate's semaphore.
    Semaphore,
    /// One cached owner a CPU.
    Kamezawa,
    /// One cached owner a thread, for 64 events.
    PerThread64,
    /// The kernel's stock of charges: seven owners a CPU.
    MemcgStock,
    /// The C library's `malloc`.
    Glibc,
    /// The mimalloc allocator.
    Mimalloc,
    /// The jemalloc allocator.
    Jemalloc,
    /// The snmalloc allocator.
    Snmalloc,
    /// The rpmalloc allocator.
    Rpmalloc,
    /// A freelist a CPU behind a lock.
    SlubLock,
    /// A freelist a CPU, changed together with a transaction id.
    SlubTid,
    /// The metrics-exporter-prometheus crate.
    MetricsExporter,
    /// The prometheus-client crate.
    PrometheusClient,
    /// The library this program belongs to.
    ThisCpu,
    /// The same registry of metrics, by the facade `metrics`.
    ThisCpuFacade,
    /// That library's cache of objects of one size.
    ThisCpuCache,
    /// That library's `malloc`.
    ThisCpuMalloc,
    /// The same, with a sampled share of blocks guarded.
    ThisCpuHardened,
    /// No counting at all: what the others' work is measured against, and no contender itself.
    Nothing,
}

impl Name {
    /// Everyone who competes, in the order they are shown.
    pub(crate) const ALL: [Self; 28] = [
        Self::Atomic,
        Self::SpinlockFold,
        Self::Dumazet,
        Self::LiGate,
        Self::Striped,
        Self::Section,
        Self::AtomicCas,
        Self::CompareTwice,
        Self::CompareOnce,
        Self::LimitedAdd,
        Self::Semaphore,
        Self::Kamezawa,
        Self::PerThread64,
        Self::MemcgStock,
        Self::Glibc,
        Self::Mimalloc,
        Self::Jemalloc,
        Self::Snmalloc,
        Self::Rpmalloc,
        Self::SlubLock,
        Self::SlubTid,
        Self::MetricsExporter,
        Self::PrometheusClient,
        Self::ThisCpu,
        Self::ThisCpuFacade,
        Self::ThisCpuCache,
        Self::ThisCpuMalloc,
        Self::ThisCpuHardened,
    ];

    /// The name as it is typed and printed.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Atomic => "atomic",
            Self::SpinlockFold => "spinlock-fold",
            Self::Dumazet => "dumazet",
            Self::LiGate => "li-gate",
            Self::Striped => "striped",
            Self::Section => "section",
            Self::AtomicCas => "atomic-cas",
            Self::CompareTwice => "compare-twice",
            Self::CompareOnce => "compare-once",
            Self::LimitedAdd => "limited-add",
            Self::Semaphore => "semaphore",
            Self::Kamezawa => "kamezawa",
            Self::PerThread64 => "per-thread-64",
            Self::MemcgStock => "memcg-stock",
            Self::Glibc => "glibc",
            Self::Mimalloc => "mimalloc",
            Self::Jemalloc => "jemalloc",
            Self::Snmalloc => "snmalloc",
            Self::Rpmalloc => "rpmalloc",
            Self::SlubLock => "slub-lock",
            Self::SlubTid => "slub-tid",
            Self::MetricsExporter => "metrics-exporter-prometheus",
            Self::PrometheusClient => "prometheus-client",
            Self::ThisCpu => "thiscpu",
            Self::ThisCpuFacade => "thiscpu-facade",
            Self::ThisCpuCache => "thiscpu-cache",
            Self::ThisCpuMalloc => "thiscpu-malloc",
            Self::ThisCpuHardened => "thiscpu-hardened",
            Self::Nothing => "none",
        }
    }

    /// Whether this program and this machine can run it; if not, why.
    ///
    /// # Errors
    ///
    /// The reason, as a sentence.
    pub(crate) fn available(self) -> anyhow::Result<()> {
        match self {
            Self::Section => counters::Section::try_new().map(drop),
            Self::Mimalloc | Self::Jemalloc | Self::Snmalloc | Self::Rpmalloc => {
                // The same words for all of them, so that they are said once.
                ensure!(
                    cfg!(feature = "other-allocators"),
                    "mimalloc, jemalloc, snmalloc and rpmalloc are not built in, since they need more \
                     than Rust (C and C++ compilers, cmake, make); with these there, \
                     `cargo run --release -p thiscpu-bench --features other-allocators -- bench alloc` has them"
                );
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|name| name.as_str() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::as_str).join(", ");
            format!("no contender has that name; there are {names}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for name in Name::ALL {
            assert_eq!(name.to_string().parse(), Ok(name));
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let message = "mutex".parse::<Name>().unwrap_err();
        for name in Name::ALL {
            assert!(message.contains(name.as_str()), "{message}");
        }
        "none".parse::<Name>().unwrap_err();
    }
}

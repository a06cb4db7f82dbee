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
    /// Lanes folded into an atomic total; sums announce themselves.
    Dumazet,
    /// Lanes folded into an atomic total; folding adders and sums pass gates.
    LiGate,
    /// The contatori crate's counter.
    Striped,
    /// The lower bound: the shortest possible restartable section.
    Section,
    /// One shared word, changed by compare-exchange.
    AtomicCas,
    /// The kernel's counter, compared before and after each subtraction.
    CompareTwice,
    /// The kernel's counter, whose first comparison decides if it took a sum.
    CompareOnce,
    /// The kernel's counter, with adds that stop at a limit.
    LimitedAdd,
    /// The tokio crate's semaphore.
    Semaphore,
    /// One cached owner per CPU.
    Kamezawa,
    /// One cached owner per thread, for 64 events.
    PerThread64,
    /// The kernel's stock of charges: seven owners per CPU.
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
    /// One freelist per CPU, behind a lock.
    SlubLock,
    /// One freelist per CPU, changed together with a transaction id.
    SlubTid,
    /// The metrics-exporter-prometheus crate.
    MetricsExporter,
    /// The prometheus-client crate.
    PrometheusClient,
    /// This project's counter, budget, ledger or registry of metrics.
    ThisCpu,
    /// This project's registry of metrics, used through the `metrics` facade.
    ThisCpuFacade,
    /// This project's cache of objects of one size.
    ThisCpuCache,
    /// This project's `malloc`.
    ThisCpuMalloc,
    /// This project's `malloc`, with a sample of its blocks guarded.
    ThisCpuHardened,
    /// No accounting: the baseline of the others' measurements, not itself a contender.
    Nothing,
}

impl Name {
    /// All contenders, in the order in which reports show them.
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

    /// Returns the name as users type it and reports print it.
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

    /// Checks that this program and this machine can run the contender.
    ///
    /// # Errors
    ///
    /// Returns an error that says why they cannot.
    pub(crate) fn available(self) -> anyhow::Result<()> {
        match self {
            Self::Section => counters::Section::try_new().map(drop),
            Self::Mimalloc | Self::Jemalloc | Self::Snmalloc | Self::Rpmalloc => {
                // All four share one message, so that it is printed once.
                ensure!(
                    cfg!(feature = "other-allocators"),
                    "mimalloc, jemalloc, snmalloc and rpmalloc are unavailable: \
                     this program was built without them; install C and C++ compilers, cmake \
                     and make, and run `cargo run --release -p thiscpu-bench \
                     --features other-allocators -- bench alloc`"
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
            format!("unknown contender \"{text}\": the contenders are {names}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_parses_its_own_text() {
        for name in Name::ALL {
            assert_eq!(name.to_string().parse(), Ok(name));
        }
    }

    #[test]
    fn name_parse_error_lists_all_contenders() {
        let message = "mutex".parse::<Name>().unwrap_err();
        for name in Name::ALL {
            assert!(message.contains(name.as_str()), "{message}");
        }
        "none".parse::<Name>().unwrap_err();
    }
}

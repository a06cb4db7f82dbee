//! The names of all contenders.

use anyhow::ensure;

use super::counters::{self, Contender as _};
use crate::named::named_enum;

named_enum! {
    /// A contender: a design that is measured.
    enum Name, "contender" {
        Atomic "atomic" "Shared words, changed by atomic additions",
        SpinlockFold "spinlock-fold"
            "Lanes folded into a total under a spinlock (Linux before 2011)",
        Dumazet "dumazet" "Lanes folded into an atomic total; sums announce themselves",
        LiGate "li-gate" "Lanes folded into an atomic total; adders and sums pass gates",
        Striped "striped" "The contatori crate",
        Section "section"
            "The lower bound of an add: the shortest restartable section; its sums are not exact",
        AtomicCas "atomic-cas" "One shared word, changed by compare-exchange",
        CompareTwice "compare-twice"
            "The kernel's counter, compared before and after (XFS in 2015); may refuse wrongly",
        CompareOnce "compare-once"
            "compare-twice without the second comparison; grants past the limit",
        LimitedAdd "limited-add"
            "The kernel's counter with limited adds (Linux 6.7); grants past the limit",
        Semaphore "semaphore" "The tokio crate's semaphore",
        Kamezawa "kamezawa" "One cached account per CPU (proposed for Linux in 2009)",
        PerThread64 "per-thread-64"
            "One cached account per thread, flushed after 64 charges (Linux until 2022)",
        MemcgStock "memcg-stock"
            "Charges stocked for seven accounts per CPU; a random one is evicted",
        Glibc "glibc" "The C library's malloc and free",
        Mimalloc "mimalloc" "The mimalloc allocator",
        Jemalloc "jemalloc" "The jemalloc allocator",
        Snmalloc "snmalloc" "The snmalloc allocator",
        Rpmalloc "rpmalloc" "The rpmalloc allocator",
        SlubLock "slub-lock"
            "A freelist per CPU behind a lock (Linux until 2010); objects of one size",
        SlubTid "slub-tid"
            "A freelist per CPU, changed together with a transaction id (Linux until 2025)",
        MetricsExporter "metrics-exporter-prometheus"
            "The metrics-exporter-prometheus crate, through the metrics facade",
        PrometheusClient "prometheus-client" "The prometheus-client crate",
        Tower "tower" "The tower crate's own layers",
        Governor "governor" "The governor crate's direct limiter, with the clock of quanta",
        Ratelimit "ratelimit" "The ratelimit crate",
        Uncontended "uncontended"
            "An atomic of its own for each process: a bound; its sums are not of one instant",
        RobustMutex "robust-mutex" "A count under a robust mutex that processes share",
        SysvSemaphore "sysv-semaphore" "A count under a System V semaphore",
        ThisCpuLocal "thiscpu-local" "This library's counter in each process, which share nothing",
        ThisCpu "thiscpu"
            "This library; thiscpu-metrics with its own handles; thiscpu-tower",
        ThisCpuWindow "thiscpu-window" "This library's strict window",
        ThisCpuFacade "thiscpu-facade" "thiscpu-metrics, through the metrics facade",
        ThisCpuCache "thiscpu-cache" "This library's cache of objects of one size",
        ThisCpuMalloc "thiscpu-malloc" "This project's malloc and free",
        ThisCpuHardened "thiscpu-hardened" "thiscpu-malloc, with a sampled share of guarded blocks",
        ; Nothing "none" "No accounting: the baseline that contenders are measured against",
    }
}

impl Name {
    /// Returns whether the contender is part of this project.
    pub(crate) const fn is_ours(self) -> bool {
        matches!(
            self,
            Self::ThisCpu
                | Self::ThisCpuLocal
                | Self::ThisCpuFacade
                | Self::ThisCpuWindow
                | Self::ThisCpuCache
                | Self::ThisCpuMalloc
                | Self::ThisCpuHardened
        )
    }

    /// Returns whether it does less than is asked of a contender.
    pub(crate) const fn is_bound(self) -> bool {
        matches!(self, Self::Section | Self::Uncontended | Self::ThisCpuLocal | Self::Nothing)
    }

    /// Returns whether it is a design of others: no part of this project, and no bound.
    pub(crate) const fn is_rival(self) -> bool {
        !self.is_ours() && !self.is_bound()
    }

    /// Returns an error with the reason if this program or this machine cannot run the contender.
    pub(crate) fn available(self) -> anyhow::Result<()> {
        match self {
            Self::Section => counters::Section::try_new().map(drop),
            Self::Mimalloc | Self::Jemalloc | Self::Snmalloc | Self::Rpmalloc => {
                // One message for all four, so that it is printed once.
                ensure!(
                    cfg!(feature = "other-allocators"),
                    "mimalloc, jemalloc, snmalloc and rpmalloc are not built in: they need C and \
                     C++ compilers, cmake and make; with these, run `cargo run --release \
                     -p thiscpu-bench --features other-allocators -- bench alloc`"
                );
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

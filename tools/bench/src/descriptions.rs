//! What is done in each kind of case, and who each contender is, in words for those who look at a report.

use crate::{contenders::Name, kind::Kind, workloads::Workload};

impl Workload {
    /// What it is about, in a sentence without its full stop.
    pub(crate) const fn what(self) -> &'static str {
        match self {
            Self::Add => "Every thread adds 1 to one counter",
            Self::Commit => "Memory is mapped and unmapped, and its pages are accounted for",
            Self::Sum => "Sums are taken while others add",
            Self::Threshold => "Every thread compares with a limit that the value hovers at",
            Self::Memory => "Many counters, or accounts, are made and used",
            Self::Budget => {
                "Blocks are allocated from a shared amount and freed, far from its limit, near it and at it"
            }
            Self::Fault => "Page faults are accounted for",
            Self::Ledger => "Accounts of many owners are charged",
            Self::Metrics => "Metrics are incremented, and scraped",
            Self::Alloc => {
                "Objects are allocated and freed; each slice is a process in which one contender allocates"
            }
        }
    }
}

impl Kind {
    /// What is done in it, in a sentence without its full stop.
    pub(crate) const fn what(self) -> &'static str {
        match self {
            Self::Add => "Every thread adds 1",
            Self::Accounting => "Plus and minus 32,768 pages, around nothing",
            Self::Syscalls => "The same around a real mmap and munmap of 128 MiB; none: only these",
            Self::Token => {
                "A token is passed, so that the true value is 0 or 1, while one thread sums"
            }
            Self::Slowdown => {
                "What two adders lose to a third thread that sums 1,000 times a second"
            }
            Self::Threshold => "Add 1, compare with a limit the value hovers at, subtract 1",
            Self::Memory => {
                "1,000,000 counters (striped: 5,000; a trial: a hundredth of it), each used from two CPUs"
            }
            Self::MemoryAccounts => {
                "1,000,000 accounts of four counters (a trial: a hundredth of it), each used from two CPUs"
            }
            Self::Far => "One block allocated and freed, far from the limit",
            Self::Near => "1 to 64 blocks allocated or freed, where no refusal can be right",
            Self::Oscillate => "Writers allocate until they are refused, then free all",
            Self::Exhausted => {
                "1 to 64 blocks allocated or freed at the limit, half of the calls refused"
            }
            Self::FaultAccounting => {
                "A page charged to the three counters of one account, and uncharged"
            }
            Self::FaultSyscalls => {
                "The same around a real page fault and an madvise; none: only these"
            }
            Self::Single => "One unit charged to the account of one owner",
            Self::WorkingSet8 => "The same to 8 owners, round robin",
            Self::WorkingSet64 => "The same to 64 owners, round robin",
            Self::WorkingSet512 => "The same to 512 owners, round robin",
            Self::Zipf => "The same to 1,000,000 owners, as a Zipf law of exponent 0.99 draws them",
            Self::SnapshotAll => {
                "One thread charges while another takes snapshots of 1,000,000 accounts"
            }
            Self::Audit => {
                "Not timed: accounts come and go, units move, the process forks; each unit is accounted for"
            }
            Self::Increment => "One counter of a registry incremented, by a handle",
            Self::Scrape => {
                "The text of 100,000 counters, all incremented on two CPUs since the last one (a trial: 1,000)"
            }
            Self::Alloc(case) => case.what(),
        }
    }
}

impl Name {
    /// Whether it is this project's.
    pub(crate) const fn is_ours(self) -> bool {
        matches!(
            self,
            Self::ThisCpu
                | Self::ThisCpuFacade
                | Self::ThisCpuCache
                | Self::ThisCpuMalloc
                | Self::ThisCpuHardened
        )
    }

    /// Who it is, in a few words.
    pub(crate) const fn what(self) -> &'static str {
        match self {
            Self::Atomic => "shared words, changed by atomic additions",
            Self::SpinlockFold => "lanes folded into a total under a spinlock (Linux before 2011)",
            Self::Dumazet => "lanes folded into an atomic total, sums announced",
            Self::LiGate => "lanes folded into an atomic total, adders and sums behind gates",
            Self::Striped => "the contatori crate",
            Self::Section => {
                "the floor of an add: the least a restartable section can do; its sums are not exact"
            }
            Self::AtomicCas => "one shared word, by compare-exchange",
            Self::CompareTwice => {
                "the kernel's counter, compared before and after (XFS in 2015); may refuse wrongly"
            }
            Self::CompareOnce => "the same without the second compare; grants past the limit",
            Self::LimitedAdd => {
                "the kernel's counter, added to up to a limit (Linux 6.7); grants past the limit"
            }
            Self::Semaphore => "the tokio crate's semaphore",
            Self::Kamezawa => "one cached owner a CPU (proposed for Linux in 2009)",
            Self::PerThread64 => {
                "one cached owner a thread, handed in after 64 charges (Linux until 2022)"
            }
            Self::MemcgStock => {
                "a stock of charges for seven owners a CPU, random ones of whom make room"
            }
            Self::Glibc => "the C library's malloc",
            Self::Mimalloc => "the mimalloc allocator",
            Self::Jemalloc => "the jemalloc allocator",
            Self::Snmalloc => "the snmalloc allocator",
            Self::Rpmalloc => "the rpmalloc allocator",
            Self::SlubLock => {
                "a freelist a CPU behind a lock (Linux until 2010); all objects have one size"
            }
            Self::SlubTid => {
                "a freelist a CPU, changed together with a transaction id (Linux until 2025)"
            }
            Self::MetricsExporter => "the metrics-exporter-prometheus crate, by the facade metrics",
            Self::PrometheusClient => "the prometheus-client crate",
            Self::ThisCpu => "this library",
            Self::ThisCpuFacade => "this project's registry of metrics, by the facade metrics",
            Self::ThisCpuCache => "this library's cache of objects of one size",
            Self::ThisCpuMalloc => "this project's malloc",
            Self::ThisCpuHardened => "the same, with a sampled share of blocks guarded",
            Self::Nothing => "nothing is counted: what the others' work is measured against",
        }
    }
}

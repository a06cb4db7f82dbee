//! The kinds of cases: the name of each, its contenders, and the function that measures it.

use crate::{
    contenders::{Name, budgets, counters, layers, ledgers, limits, processes, rates, registries},
    metric::{
        ADDERS_SLOWDOWN, ADMITTED_IN_A_SECOND, Metric, RESIDENT_BYTES, RESIDENT_PER_ACCOUNT,
        RESIDENT_PER_COUNTER, TIME_PER_OP, TIME_PER_SCRAPE, TIME_PER_SNAPSHOT, TIME_PER_SUM,
    },
    workloads::{
        Info, Measured, Setting, Threads, Workload, add,
        alloc::{self, AllocCase},
        budget, commit, fault,
        ledger::{self, audit, snapshot_all},
        lifetime,
        memory::{self, Many},
        metrics, rate, shared, shared_limit, slowdown, threshold, token, tower,
        walk::{self, Cell},
    },
};

/// The rounds of most cases unless others are requested.
pub(crate) const DEFAULT_ROUNDS: u32 = 7;

/// Evaluates to the contenders of a kind, or measures the one of a setting.
///
/// Brackets have a family of contenders and a function that is generic over them, or else a list of
/// contenders in parentheses and what measures them all.
macro_rules! of_kind {
    (contenders [($contenders:expr) $($measure:tt)*]) => { $contenders };
    (contenders [$family:ident $($measure:tt)*]) => { $family::ALL };
    ($setting:ident [($contenders:expr) $($measure:tt)*]) => { $($measure)*($setting) };
    ($setting:ident [$family:ident $($measure:tt)*]) => {
        $family::dispatch!($setting.contender, C => $($measure)*($setting))
    };
}

/// Defines the kinds, with the facts that lists and plans need, and how each is measured.
macro_rules! kinds {
    ($($Kind:ident: $workload:ident $name:literal, $threads:expr, $how:tt, $what:literal;)*) => {
        /// The kind of a case. A workload has one of these or several.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum Kind {
            $(#[doc = $what] $Kind,)*
            Alloc(AllocCase),
            Walk(Cell),
        }

        impl Kind {
            /// Returns every kind, in the order they run within their workloads.
            pub(crate) fn all() -> impl Iterator<Item = Self> {
                let of_allocators = AllocCase::ALL.map(Self::Alloc).into_iter();
                let of_allocators = of_allocators.chain(Cell::ALL.map(Self::Walk));
                [$(Self::$Kind),*].into_iter().chain(of_allocators)
            }

            pub(crate) const fn info(self) -> Info {
                match self {
                    $(Self::$Kind => Info {
                        workload: Workload::$workload,
                        name: $name,
                        threads: $threads,
                        contenders: of_kind!(contenders $how),
                        what: $what,
                    },)*
                    Self::Alloc(case) => case.info(),
                    Self::Walk(cell) => cell.info(),
                }
            }

            /// Measures the contender of `setting` once.
            pub(crate) fn measure(self, setting: &Setting<'_>) -> Measured {
                match self {
                    $(Self::$Kind => of_kind!(setting $how),)*
                    Self::Alloc(case) => alloc::measure(case, setting),
                    Self::Walk(cell) => walk::measure(cell, setting),
                }
            }
        }
    };
}

use Threads::{Default, Fixed};

kinds! {
    Add: Add "", Default(&[1, 2]), [counters add::measure::<C>], "Every thread adds 1";
    Accounting: Commit "accounting", Default(&[2, 16]), [counters commit::accounting::<C>],
        "Plus and minus 32,768 pages, without a mapping";
    Syscalls: Commit "syscalls", Default(&[2, 16]), [counters commit::syscalls::<C>],
        "Plus and minus around mmap and munmap of 128 MiB; none makes only these calls";
    Token: Sum "token", Default(&[4]), [counters token::measure::<C>],
        "Adders pass a token (+1, -1), so a true sum is 0 or 1; half of them have no lane";
    Slowdown: Sum "slowdown", Fixed(slowdown::ADDERS), [counters slowdown::measure::<C>],
        "The loss of two adders to a third thread that sums 1,000 times a second";
    Threshold: Threshold "", Default(&[2, 16]), [counters threshold::measure::<C>],
        "Add 1, compare with a limit near the value, subtract 1";
    Memory: Memory "", Fixed(memory::THREADS),
        [(Many::Counters.contenders()) Many::Counters.measure],
        "1,000,000 counters (striped: 5,000), each used from two CPUs; one round";
    MemoryAccounts: Memory "accounts", Fixed(memory::THREADS),
        [(Many::Accounts.contenders()) Many::Accounts.measure],
        "1,000,000 accounts of four counters, each used from two CPUs; one round";
    Lifetime: Lifetime "", Default(&[2, 64]), [(&[Name::ThisCpu]) lifetime::measure],
        "A random one of 1,000,000 counters dropped, and another made and used; also one of 1,000";
    Far: Budget "far", Default(&[1, 2]), [budgets budget::far::<C>],
        "One block allocated and freed, far from the limit";
    Near: Budget "near", Default(&[2, 16]), [budgets budget::near::<C>],
        "1 to 64 blocks allocated or freed, near the limit; every refusal is wrong";
    Oscillate: Budget "oscillate", Default(&[2, 16]), [budgets budget::oscillate::<C>],
        "Writers allocate until they are refused, then free all";
    Exhausted: Budget "exhausted", Default(&[2, 16]), [budgets budget::exhausted::<C>],
        "1 to 64 blocks allocated or freed at the limit; half of the allocations fail";
    FaultAccounting: Fault "accounting", Default(&[2, 16]), [ledgers fault::accounting::<C>],
        "A page charged to one account's three counters and uncharged, without a fault";
    FaultSyscalls: Fault "syscalls", Default(&[2, 16]), [ledgers fault::syscalls::<C>],
        "A page charged around a page fault and madvise; none makes only these";
    Single: Ledger "single", Default(&[1, 2]), [ledgers ledger::live::<C, 1>],
        "One unit charged to one owner's account";
    WorkingSet8: Ledger "working-set-8", Default(&[2]), [ledgers ledger::live::<C, 8>],
        "One unit charged to 8 owners in turn";
    WorkingSet64: Ledger "working-set-64", Default(&[2]), [ledgers ledger::live::<C, 64>],
        "One unit charged to 64 owners in turn";
    WorkingSet512: Ledger "working-set-512", Default(&[2]), [ledgers ledger::live::<C, 512>],
        "One unit charged to 512 owners in turn";
    Zipf: Ledger "zipf", Default(&[2]), [ledgers ledger::zipf::<C>],
        "One unit charged to 1,000,000 owners, drawn by a Zipf law of exponent 0.99";
    SnapshotAll: Ledger "snapshot-all", Fixed(snapshot_all::THREADS),
        [(&[Name::ThisCpu]) snapshot_all::measure],
        "One thread charges while another takes snapshots of 1,000,000 accounts";
    Audit: Ledger "audit", Default(&[2, 4, 16]), [(&[Name::ThisCpu]) audit::audit],
        "Not timed: accounts for every unit, during opens, transfers, snapshots and forks";
    Increment: Metrics "increment", Default(&[1, 2]), [registries metrics::increment::<C>],
        "One counter of a registry incremented through a handle";
    LookUp: Metrics "look-up", Default(&[1, 2]),
        [(registries::look_up::ALL) metrics::look_up::<64, 1, true>],
        "One of 64 counters with a label looked up and incremented; none only makes the key";
    LookUpStatic: Metrics "look-up-static", Default(&[1, 2]),
        [(registries::look_up::ALL) metrics::look_up::<64, 1, false>],
        "As look-up, with a value in the program's text, which nobody copies";
    LookUpLabels: Metrics "look-up-labels", Default(&[1, 2]),
        [(registries::look_up::ALL) metrics::look_up::<64, 6, true>],
        "One of 64 counters with six labels looked up and incremented";
    LookUpMany: Metrics "look-up-many", Default(&[1, 2]),
        [(registries::look_up::ALL) metrics::look_up::<10_000, 1, true>],
        "One of 10,000 counters with a label looked up and incremented";
    Scrape: Metrics "scrape", Fixed(metrics::SCRAPE_THREADS), [registries metrics::scrape::<C>],
        "The text of 100,000 counters, all incremented on two CPUs since the last scrape";
    SharedAdd: Shared "add", Default(&[1, 2]), [processes shared::add::<C>],
        "Every process adds 1; processes for threads";
    SharedSlowdown: Shared "add-sums", Fixed(slowdown::ADDERS), [(shared::SUMMED) shared::slowdown],
        "The loss of two adding processes to a third one that sums 1,000 times a second";
    SharedSum2: Shared "sum-2", Fixed(1), [(&[Name::ThisCpu]) shared::sum::<2>],
        "An exact sum of 2 lanes";
    SharedSum64: Shared "sum-64", Fixed(1), [(&[Name::ThisCpu]) shared::sum::<64>],
        "An exact sum of 64 lanes";
    SharedAttach: Shared "attach", Fixed(1), [(&[Name::ThisCpu]) shared::attach],
        "A segment opened by path, one add to a counter in it, and the segment closed";
    SharedFar: Shared "limit-far", Default(&[1, 2]), [limits shared_limit::far::<C>],
        "Every process acquires a unit of a budget, and releases it, far from the limit";
    SharedLast: Shared "limit-last", Default(&[1, 2]), [limits shared_limit::last::<C>],
        "The only unit of a budget is acquired and released, or refused";
    LimitFar: Tower "limit-far", Default(tower::TASKS), [layers tower::limit_far::<C>],
        "A request that would wait at a limit, which is out of reach; tasks for threads";
    LimitReached: Tower "limit-reached", Default(tower::TASKS), [layers tower::limit_reached::<C>],
        "A request that waits while half of the tasks are served; tasks for threads";
    ShedFar: Tower "shed-far", Default(tower::TASKS), [layers tower::shed_far::<C>],
        "A request that would be refused at a limit, which is out of reach; tasks for threads";
    ShedReached: Tower "shed-reached", Default(tower::TASKS), [layers tower::shed_reached::<C>],
        "A request that is refused while half of the tasks are served; tasks for threads";
    RateFar: Rate "far", Default(&[1, 2]), [rates rate::far::<C>],
        "A call far from a limit on calls a second; atomic-cas only counts down";
    RateRefused: Rate "refused", Default(&[1, 2]), [rates rate::refused::<C>],
        "A call at such a limit, which refuses nearly all; atomic-cas only loads";
    WorstSecond: Rate "worst-second", Fixed(1), [(rates::WORST_SECOND) rate::worst_second],
        "Not timed: the most calls within a second of a limit of 100 a second";
    RateAudit: Rate "audit", Default(&[1, 4, 64]), [(&[Name::ThisCpu]) rate::audit],
        "Not timed: looks for spans with too much, and for refusals that nothing explains";
}

impl Kind {
    pub(crate) fn find(workload: Workload, name: &str) -> Option<Self> {
        Self::all().find(|kind| kind.workload() == workload && kind.case_name() == name)
    }

    pub(crate) const fn workload(self) -> Workload {
        self.info().workload
    }

    /// Returns the name that tells the kinds of one workload apart.
    pub(crate) const fn case_name(self) -> &'static str {
        self.info().name
    }

    /// Returns the workload's name with the case's, if it has one.
    pub(crate) fn title(self) -> String {
        format!("{} {}", self.workload(), self.case_name()).trim_end().to_owned()
    }

    /// Returns whether it runs when no workload is named, so that a full run is not too long.
    pub(crate) const fn runs_by_default(self) -> bool {
        match self {
            Self::Alloc(case) => case.runs_by_default(),
            Self::Walk(_) | Self::Lifetime => false,
            _ => true,
        }
    }

    /// Returns whether it runs in a quick run whose workload is named.
    pub(crate) fn runs_quickly(self) -> bool {
        match self {
            Self::Walk(cell) => cell.is_quick(),
            _ => true,
        }
    }

    /// Returns the numbers of threads it runs with, given those `requested`.
    pub(crate) fn threads(self, requested: &[usize]) -> Vec<usize> {
        match self.info().threads {
            Fixed(threads) => vec![threads],
            Default(threads) if requested.is_empty() => threads.to_vec(),
            Default(_) => requested.to_vec(),
        }
    }

    /// Returns those of `requested` that can run it, and their baseline if it has one.
    pub(crate) fn contenders(self, requested: &[Name]) -> Vec<Name> {
        let can_run = self.info().contenders;
        let is_able = |name: &Name| can_run.contains(name);
        let mut names: Vec<Name> = requested.iter().copied().filter(is_able).collect();
        let has_baseline = matches!(
            self,
            Self::Syscalls
                | Self::FaultSyscalls
                | Self::LookUp
                | Self::LookUpStatic
                | Self::LookUpLabels
                | Self::LookUpMany
        );
        if has_baseline && !names.is_empty() {
            names.insert(0, Name::Nothing);
        }
        names
    }

    pub(crate) fn has(self, name: Name) -> bool {
        self.info().contenders.contains(&name)
    }

    /// Returns how often it is measured: once if a million counters or accounts repeat enough.
    pub(crate) fn rounds(self, requested: Option<u32>) -> u32 {
        match self {
            Self::Memory | Self::MemoryAccounts | Self::WorstSecond => 1,
            Self::Walk(_) => requested.unwrap_or(walk::ROUNDS),
            _ => requested.unwrap_or(DEFAULT_ROUNDS),
        }
    }

    /// Returns whether it audits calls, so that `--audit` applies.
    pub(crate) const fn is_audited(self) -> bool {
        matches!(
            self,
            Self::Near | Self::Oscillate | Self::Exhausted | Self::Audit | Self::RateAudit
        )
    }

    /// Returns the metric by which contenders are compared.
    pub(crate) const fn compared(self) -> &'static Metric {
        match self {
            Self::Alloc(case) if case.measures_memory() => &RESIDENT_BYTES,
            Self::Scrape => &TIME_PER_SCRAPE,
            Self::WorstSecond => &ADMITTED_IN_A_SECOND,
            _ => &TIME_PER_OP,
        }
    }

    /// Returns the metric that its plot shows, if it has one.
    ///
    /// Cases that only find errors have none, and cells of the walk, which one table shows.
    pub(crate) const fn drawn(self) -> Option<&'static Metric> {
        match self {
            Self::Token => Some(&TIME_PER_SUM),
            Self::Slowdown | Self::SharedSlowdown => Some(&ADDERS_SLOWDOWN),
            Self::Memory => Some(&RESIDENT_PER_COUNTER),
            Self::MemoryAccounts => Some(&RESIDENT_PER_ACCOUNT),
            Self::SnapshotAll => Some(&TIME_PER_SNAPSHOT),
            Self::Audit | Self::RateAudit | Self::WorstSecond | Self::Walk(_) => None,
            _ => Some(self.compared()),
        }
    }
}

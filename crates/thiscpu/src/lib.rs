//! Per-CPU data structures for Linux programs, built on restartable sequences (rseq).
//!
//! The Linux kernel keeps its hottest counters, limits and caches per CPU. This crate offers those
//! designs to user space, with guarantees that the kernel's versions do not give: sums are exact,
//! and limits are never exceeded and never refuse wrongly.
//!
//! ```
//! static REQUESTS: thiscpu::Counter = thiscpu::Counter::new();
//!
//! REQUESTS.inc();
//! println!("{} requests", REQUESTS.sum());
//! ```
//!
//! # Types
//!
//! | type | use it for |
//! |---|---|
//! | [`Counter`] | counting on many CPUs: about 1 ns an add, and exact sums at any time |
//! | [`Counters`] | several counters that are read at one instant |
//! | [`Budget`] | a limit on units in use: about 1 ns a call while there is room |
//! | [`Rate`] | a limit on units over time: so many a second, about 1 ns a call |
//! | [`RateWindow`] | a strict limit: never more than so many in any second |
//! | [`Ledger`] | counters for each of many owners, such as tenants: [`Account`]s |
//! | [`Segment`] | what processes share: [`SharedCounter`], [`SharedCounters`], [`SharedBudget`] |
//! | [`Cache`] | objects of one type, allocated from and freed to arrays on each CPU |
//! | [`PerCpu`], [`PerCpuPair`], [`PerCpuStack`] | words, pairs and lists, one for each CPU |
//!
//! [`sum_all`] sums many counters for the price of one fence. [`system_info()`] tells which tier
//! this process runs on, and why.
//!
//! The [guide] says which type to take and which not, and how to migrate from atomics, striped
//! counters, semaphores and librseq.
//!
//! # Tiers
//!
//! Every guarantee holds on every machine. Only speed differs, and whether an add is wait-free or
//! lock-free. [`tier()`] returns the tier that this process runs on:
//!
//! | tier | how a call finds its CPU's data | needs |
//! |---|---|---|
//! | [`rseq-cid`](Tier::RseqCid) | a section, indexed by `mm_cid` | Linux 6.3 |
//! | [`rseq-cpu`](Tier::RseqCpu) | a section, indexed by `cpu_id` | Linux 5.10 |
//! | [`atomic`](Tier::Atomic) | ordinary atomics | nothing |
//!
//! The environment variable `THISCPU_TIER` forces a tier. If it is unset or empty, the first use of
//! this crate chooses the best one.
//!
//! # Requirements
//!
//! - Linux on x86-64 or AArch64.
//! - If glibc registers threads with rseq, this crate shares its registration. Otherwise each
//!   thread registers at its first use.
//! - Memory that holds sections must stay mapped: a shared object that links this crate statically
//!   is never unloaded.
//! - A process may fork at any time, and its children may use this crate. A child of `vfork` or of
//!   `clone(CLONE_VM)` may use it if its parent holds a [`vfork_scope`].
//!
//! # Signal handlers
//!
//! A signal handler may call [`Counter::add`], `inc`, `dec`, `read` and `bounds`, every operation
//! of the `PerCpu*` types, and [`Budget::release`] if no task waits for units. Everything else may
//! take a lock. In a release build, each of these calls uses at most 2 KiB of stack, and any other
//! call at most 16 KiB, besides an array that it returns by value.
//!
//! # Cancellation
//!
//! No call is a cancellation point (`pthread_cancel`), except one that panics. Asynchronous
//! cancellation is not safe in any call.

// In a document, links lead to files of the repository. The definitions here come first, so its
// links lead to this crate's documentation.

#[cfg(any(doc, doctest))]
/// The guide, from the first counter to a quota per tenant.
///
/// [`Budget`]: crate::Budget
/// [`Cache`]: crate::Cache
/// [`ConstructedCache`]: crate::ConstructedCache
/// [`Counter`]: crate::Counter
/// [`Counters`]: crate::Counters
/// [`Lease`]: crate::Lease
/// [`Ledger`]: crate::Ledger
/// [`PerCpu`]: crate::PerCpu
/// [`Rate`]: crate::Rate
/// [`Reserve`]: crate::Reserve
/// [`Segment`]: crate::Segment
/// [`SharedBudget`]: crate::SharedBudget
/// [`acquire_async`]: crate::Budget::acquire_async
/// [`with_batch`]: crate::Counter::with_batch
/// [benchmarks]: https://github.com/thiscpu/thiscpu/blob/main/docs/benchmarks.md
/// [glossary]: https://github.com/thiscpu/thiscpu/blob/main/docs/glossary.md
/// [guarantees]: https://github.com/thiscpu/thiscpu/blob/main/docs/guarantees.md
/// [tokio_budget.rs]: https://github.com/thiscpu/thiscpu/blob/main/examples/tokio_budget.rs
/// [per-CPU memory]: crate::design::percpu
#[doc = include_str!("../docs/guide.md")]
pub mod guide {}

/// How this crate works: one page for each mechanism.
#[cfg(any(doc, doctest))]
pub mod design {
    /// How budgets work.
    ///
    /// [`Budget`]: crate::Budget
    /// [`Lease`]: crate::Lease
    #[doc = include_str!("../docs/design/budget.md")]
    pub mod budget {}
    /// How counters work.
    #[doc = include_str!("../docs/design/counter.md")]
    pub mod counter {}
    /// How ledgers work.
    ///
    /// [`Ledger`]: crate::Ledger
    /// [`for_each`]: crate::Ledger::for_each
    #[doc = include_str!("../docs/design/ledger.md")]
    pub mod ledger {}
    /// The memory order of calls, and why it holds.
    #[doc = include_str!("../docs/design/ordering.md")]
    pub mod ordering {}
    /// How per-CPU memory works.
    #[doc = include_str!("../docs/design/percpu.md")]
    pub mod percpu {}
    /// How rates and windows work.
    ///
    /// [`Rate`]: crate::Rate
    /// [`RateWindow`]: crate::RateWindow
    #[doc = include_str!("../docs/design/rate.md")]
    pub mod rate {}
    /// How segments work.
    ///
    /// [`Segment`]: crate::Segment
    #[doc = include_str!("../docs/design/segment.md")]
    pub mod segment {}
    /// How shared budgets work.
    #[doc = include_str!("../docs/design/shared-budget.md")]
    pub mod shared_budget {}
    /// How caches work.
    ///
    /// [`Cache<T>`]: crate::Cache
    /// [`CacheBox<T>`]: crate::CacheBox
    /// [`ConstructedCache`]: crate::ConstructedCache
    /// [`RawCache`]: crate::RawCache
    /// [`close`]: crate::Cache::close
    /// [`prefill`]: crate::Cache::prefill
    /// [`shrink`]: crate::RawCache::shrink
    #[doc = include_str!("../docs/design/slab.md")]
    pub mod slab {}
    /// How all of it is tested.
    ///
    /// [glossary]: https://github.com/thiscpu/thiscpu/blob/main/docs/glossary.md
    #[doc = include_str!("../docs/testing.md")]
    pub mod testing {}
}

#[doc(hidden)]
pub mod __internal;
#[doc(hidden)]
pub mod __test_support;
mod budget;
mod counter;
mod error;
mod gate;
mod lanes;
mod ledger;
#[cfg(thiscpu_model)]
#[doc(hidden)]
pub mod model;
mod percpu;
mod rate;
mod section;
mod segment;
mod slab;
mod sys;
mod system_info;
mod tier;
#[cfg(not(thiscpu_model))]
mod vfork;

pub use budget::{
    Acquire, AcquireError, AcquireOwned, Budget, Lease, OwnedLease, Reserve, TryAcquireError,
};
pub use counter::{
    Bounds, Comparison, Counter, Counters, InFlight, OwnedInFlight, Summable, sum_all,
};
pub use error::Error;
pub use ledger::{Account, AccountId, Ledger};
pub use percpu::{Link, PairWord, PerCpu, PerCpuInt, PerCpuPair, PerCpuStack, PerCpuWord};
pub use rate::{Pace, Rate, RateConfigError, RateError, RateWindow};
#[cfg(not(thiscpu_model))]
pub use segment::{
    BudgetParticipant, BudgetState, BudgetView, CounterView, CountersView, Existing, ObjectKind,
    Objects, Segment, SegmentError, SegmentErrorKind, SegmentObject, SegmentOptions, SegmentView,
    SharedAcquire, SharedAcquireError, SharedAcquireOwned, SharedBudget, SharedCounter,
    SharedCounters, SharedLease, SharedOwnedLease,
};
pub use slab::{
    Cache, CacheBox, CacheInUse, CacheStats, Constructed, ConstructedCache, ConstructedPrefilled,
    Prefilled, RawCache, RawPrefilled,
};
pub use sys::cpu_set::CpuSet;
pub use sys::degradation::{Degradation, DegradationKind, degradations, shared_lane_calls};
pub use sys::rseq::Registrar;
pub use sys::startup::tier;
pub use system_info::{SystemInfo, system_info};
pub use tier::Tier;
#[cfg(not(thiscpu_model))]
pub use vfork::{VforkScope, vfork_scope};

//! Per-CPU data for ordinary Linux programs.
//!
//! The kernel keeps its hottest counters, reservations and caches per CPU; this library rebuilds
//! those designs for user space on restartable sequences (rseq), with promises that the kernel's
//! versions do not make.
//!
//! - [`Counter`]: adds that cost about a nanosecond on any number of CPUs, and **exact** sums at any time
//!   without making the writers wait. [`Counters`]: several, read at one instant. [`sum_all`]: many, for one fence.
//! - [`Budget`]: a limit that is never exceeded and never refused wrongly, at about a nanosecond a call while
//!   there is room.
//! - [`Ledger`]: accounts for any number of owners, charged in a cache on each CPU, exact on demand.
//! - [`Cache`]: objects of one type, from arrays on each CPU.
//! - [`PerCpu`], [`PerCpuPair`], [`PerCpuStack`]: plain per-CPU words, pairs and lists.
//! - [`report`]: which mode am I in, and why?
//!
//! The [guide] says which of them to take and which not, and how to move over from atomics, striped counters,
//! semaphores and librseq.
//!
//! ```
//! static REQUESTS: thiscpu::Counter = thiscpu::Counter::new();
//! REQUESTS.inc();
//! println!("{} requests, exactly", REQUESTS.sum());
//! ```
//!
//! # Tiers
//!
//! What is counted, and what a sum means, is the same on every machine; what differs is speed, and whether an add is
//! wait-free or lock-free. [`tier`] says what this process runs
//! on: sections indexed by `mm_cid` (Linux 6.3), sections indexed by `cpu_id` (Linux 5.10), or ordinary
//! atomics. The environment variable `THISCPU_TIER` forces one; unset and
//! empty mean the best.
//!
//! # What it needs
//!
//! Linux on x86-64 or AArch64. glibc's rseq registration is shared where there is one; elsewhere each
//! thread is registered at its first use. Memory that holds sections is never unmapped: a shared
//! object that links this library statically stays loaded. Children of `vfork` and of `clone(CLONE_VM)`
//! must not use it.

#[cfg(any(doc, doctest))]
#[doc = include_str!("../docs/guide.md")]
pub mod guide {}

/// How it works: an essay for each mechanism.
#[cfg(any(doc, doctest))]
pub mod essays {
    #[doc = include_str!("../docs/design/budget.md")]
    pub mod budget {}
    #[doc = include_str!("../docs/design/counter.md")]
    pub mod counter {}
    #[doc = include_str!("../docs/design/ledger.md")]
    pub mod ledger {}
    #[doc = include_str!("../docs/testing.md")]
    pub mod testing {}
    #[doc = include_str!("../docs/design/percpu.md")]
    pub mod percpu {}
    #[doc = include_str!("../docs/design/slab.md")]
    pub mod slab {}
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
mod section;
mod slab;
mod sys;
mod system_info;
mod tier;

pub use budget::{Acquire, Budget, Exhausted, Lease, Reserve};
pub use counter::{Bounds, Comparison, Counter, Counters, Summable, sum_all};
pub use error::Error;
pub use ledger::{Account, AccountId, Ledger};
pub use percpu::{HalfWord, Integer, Link, PerCpu, PerCpuPair, PerCpuStack, Word};
pub use slab::{
    Cache, CacheBox, CacheInUse, CacheStats, Constructed, ConstructedCache, Prefilled, RawCache,
    RawPrefilled,
};
pub use sys::rseq::Registrar;
pub use sys::startup::tier;
pub use sys::topology::CpuSet;
pub use system_info::{Report, report};
pub use tier::Tier;

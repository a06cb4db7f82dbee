//! Segments: memory that processes share, with counters and budgets that a kill cannot break.
//!
//! - `attached`: an attached segment;
//! - `budget`: the protocol of budgets that processes share;
//! - `counter`: the public counters;
//! - `dyn_counters`: counters for C;
//! - `file`: the file, and where everything in it is;
//! - `inspect`: whether all of a file fits together, for `thiscpu segment`;
//! - `lanes`: the protocol of shared counters;
//! - `member`: this process as a participant;
//! - `options`: how a segment is created and opened;
//! - `shared_budget`: the public budget;
//! - `view`: segments that a process can only read.

mod budget;
mod lanes;
#[cfg(thiscpu_model)]
mod registry;

#[cfg(not(thiscpu_model))]
mod attached;
#[cfg(not(thiscpu_model))]
mod counter;
#[cfg(not(thiscpu_model))]
mod dyn_counters;
#[cfg(not(thiscpu_model))]
mod file;
#[cfg(not(thiscpu_model))]
pub mod inspect;
#[cfg(not(thiscpu_model))]
mod member;
#[cfg(not(thiscpu_model))]
mod options;
#[cfg(not(thiscpu_model))]
mod shared_budget;
#[cfg(not(thiscpu_model))]
mod view;

#[cfg(not(thiscpu_model))]
pub use self::attached::Segment;
#[cfg(thiscpu_model)]
pub use self::budget::{Place, Process, SharedBudgets, WaitResult};
#[cfg(not(thiscpu_model))]
pub use self::counter::{SharedCounter, SharedCounters};
#[cfg(not(thiscpu_model))]
pub use self::dyn_counters::{DynCountersView, DynSharedCounters};
#[cfg(not(thiscpu_model))]
pub use self::file::error::{SegmentError, SegmentErrorKind};
#[cfg(not(thiscpu_model))]
pub use self::file::objects::{ObjectKind, Objects, SegmentObject};
#[cfg(thiscpu_model)]
pub use self::lanes::SharedCounters;
#[cfg(not(thiscpu_model))]
pub use self::options::{Existing, SegmentOptions};
#[cfg(thiscpu_model)]
pub use self::registry::{NoRoom, SharedNames};
#[cfg(not(thiscpu_model))]
pub use self::shared_budget::SharedBudget;
#[cfg(not(thiscpu_model))]
pub use self::shared_budget::error::SharedAcquireError;
#[cfg(not(thiscpu_model))]
pub use self::shared_budget::future::{SharedAcquire, SharedAcquireOwned};
#[cfg(not(thiscpu_model))]
pub use self::shared_budget::lease::{SharedLease, SharedOwnedLease, can_merge};
#[cfg(not(thiscpu_model))]
pub use self::view::{
    BudgetParticipant, BudgetState, BudgetView, CounterView, CountersView, SegmentView,
};

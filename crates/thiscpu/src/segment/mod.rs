//! Segments: memory that processes share, with counters that a kill cannot break.
//!
//! - `attached`: an attached segment;
//! - `budget`: the protocol of budgets that processes share;
//! - `budgets`: what the budgets of a segment have in common;
//! - `counter`: the public counters;
//! - `cpu`: which lane a thread adds in;
//! - `directory`: objects by name;
//! - `dyn_counters`: counters for C;
//! - `inspect`: whether all of a file fits together, for `thiscpu segment`;
//! - `lane`: a count that can be sealed;
//! - `layout`: where everything is in the file;
//! - `mapping`: the file in this process, and memory from it;
//! - `member`: this process as a participant;
//! - `membership`: the slot of this process, which children do not inherit;
//! - `modeled`: shared counters for the model, which has no files;
//! - `objects`: a list of all objects;
//! - `options`: how a segment is created and opened;
//! - `place`: where the counters of one name are;
//! - `slots`: where participants are recorded;
//! - `shared_budget`: the public budget;
//! - `shared_error`: its error;
//! - `shared_lease`: its leases;
//! - `shared_wait`: waiting for its units;
//! - `sums`: adds, and sums of one instant;
//! - `view`: segments that a process can only read.

mod budget;
mod lane;
mod sums;

#[cfg(not(thiscpu_model))]
mod attached;
#[cfg(not(thiscpu_model))]
mod budgets;
#[cfg(not(thiscpu_model))]
mod counter;
#[cfg(not(thiscpu_model))]
mod cpu;
#[cfg(not(thiscpu_model))]
mod directory;
#[cfg(not(thiscpu_model))]
mod dyn_counters;
#[cfg(not(thiscpu_model))]
mod error;
#[cfg(not(thiscpu_model))]
pub mod inspect;
#[cfg(not(thiscpu_model))]
mod layout;
#[cfg(not(thiscpu_model))]
mod mapping;
#[cfg(not(thiscpu_model))]
mod member;
#[cfg(not(thiscpu_model))]
mod membership;
#[cfg(thiscpu_model)]
mod modeled;
#[cfg(not(thiscpu_model))]
mod objects;
#[cfg(not(thiscpu_model))]
mod options;
#[cfg(not(thiscpu_model))]
mod place;
#[cfg(not(thiscpu_model))]
mod shared_budget;
#[cfg(not(thiscpu_model))]
mod shared_error;
#[cfg(not(thiscpu_model))]
mod shared_lease;
#[cfg(not(thiscpu_model))]
mod shared_wait;
#[cfg(not(thiscpu_model))]
mod slots;
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
pub use self::error::{SegmentError, SegmentErrorKind};
#[cfg(thiscpu_model)]
pub use self::modeled::SharedCounters;
#[cfg(not(thiscpu_model))]
pub use self::objects::{ObjectKind, Objects, SegmentObject};
#[cfg(not(thiscpu_model))]
pub use self::options::{Existing, SegmentOptions};
#[cfg(not(thiscpu_model))]
pub use self::shared_budget::SharedBudget;
#[cfg(not(thiscpu_model))]
pub use self::shared_error::SharedAcquireError;
#[cfg(not(thiscpu_model))]
pub use self::shared_lease::{SharedLease, SharedOwnedLease};
#[cfg(not(thiscpu_model))]
pub use self::view::{CounterView, CountersView, SegmentView};

//! Segments: memory that processes share, with counters that a kill cannot break.
//!
//! - `attached`: an attached segment;
//! - `budget`: the protocol of budgets that processes share;
//! - `counter`: the public counters;
//! - `cpu`: which lane a thread adds in;
//! - `directory`: objects by name;
//! - `dyn_counters`: counters for C;
//! - `inspect`: whether all of a file fits together, for `thiscpu segment`;
//! - `lane`: a count that can be sealed;
//! - `layout`: where everything is in the file;
//! - `mapping`: the file in this process, and memory from it;
//! - `modeled`: shared counters for the model, which has no files;
//! - `objects`: a list of all objects;
//! - `options`: how a segment is created and opened;
//! - `place`: where the counters of one name are;
//! - `sums`: adds, and sums of one instant;
//! - `view`: segments that a process can only read.

#[cfg_attr(
    not(thiscpu_model),
    expect(dead_code, unused_imports, reason = "no public type uses the protocol yet")
)]
mod budget;
mod lane;
mod sums;

#[cfg(not(thiscpu_model))]
mod attached;
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
#[cfg(thiscpu_model)]
mod modeled;
#[cfg(not(thiscpu_model))]
mod objects;
#[cfg(not(thiscpu_model))]
mod options;
#[cfg(not(thiscpu_model))]
mod place;
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
pub use self::view::{CounterView, CountersView, SegmentView};

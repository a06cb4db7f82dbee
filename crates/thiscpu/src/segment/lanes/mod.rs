//! The lanes of shared counters: one count per CPU, and exact sums of them.
//!
//! - `cpu`: which lane a thread adds in;
//! - `lane`: a count that can be sealed;
//! - `modeled`: shared counters for the model, which has no files;
//! - `removable`: a count whose memory can come to serve another counter;
//! - `sums`: adds, and exact sums.

#[cfg(not(thiscpu_model))]
pub(in crate::segment) mod cpu;
mod lane;
#[cfg(thiscpu_model)]
mod modeled;
pub(in crate::segment) mod removable;
pub(in crate::segment) mod sums;

#[cfg(thiscpu_model)]
pub use self::modeled::SharedCounters;

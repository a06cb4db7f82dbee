//! The kernel's side: rseq registration, fences, CPU and NUMA topology, fork, locks.
//!
//! Nothing in here knows a lane or a counter. Everything may run on several threads at once and in
//! a signal handler unless it says otherwise; start-up takes no lock, so a handler that interrupts
//! it just does it again.

pub(crate) mod atomic;
mod cpu_walk;
pub(crate) mod double;
pub(crate) mod env;
pub(crate) mod errno;
pub(crate) mod fence;
pub(crate) mod fork;
#[cfg(not(thiscpu_model))]
mod futex;
mod keep_mapped;
#[cfg(not(thiscpu_model))]
mod linux;
pub(crate) mod lock;
pub(crate) mod machine;
mod mapping;
pub(crate) mod membarrier;
pub(crate) mod rseq;
pub(crate) mod startup;
pub(crate) mod stderr;
pub(crate) mod topology;

/// What the process runs on: Linux, or the modelled machine.
#[cfg(thiscpu_model)]
pub(crate) use crate::model::Model as Host;
#[cfg(not(thiscpu_model))]
pub(crate) use linux::Linux as Host;

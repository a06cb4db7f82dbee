//! The system: rseq registration, fences, CPUs and NUMA nodes, forks, locks, address space.
//!
//! This layer knows nothing of lanes or counters. Everything here may run on several threads at
//! once, and in a signal handler, unless it says otherwise. Start-up takes no lock: a handler that
//! interrupts it starts up again, with the same result.

pub(crate) mod atomic;
pub(crate) mod bits;
#[cfg(not(thiscpu_model))]
pub(crate) mod bus_error;
#[cfg(not(thiscpu_model))]
pub(crate) mod chained_handler;
pub(crate) mod cpu_set;
mod cpu_walk;
pub(crate) mod degradation;
pub(crate) mod double;
pub(crate) mod env;
pub(crate) mod errno;
pub(crate) mod fence;
mod file;
pub(crate) mod fork;
#[cfg(not(thiscpu_model))]
pub(crate) mod futex;
mod keep_mapped;
#[cfg(not(thiscpu_model))]
mod linux;
pub(crate) mod lock;
#[cfg(not(thiscpu_model))]
pub(crate) mod lock_file;
pub(crate) mod machine;
pub(crate) mod membarrier;
pub(crate) mod panic_reason;
#[cfg(not(thiscpu_model))]
pub(crate) mod process;
#[cfg(not(thiscpu_model))]
pub(crate) mod quiet_thread;
pub(crate) mod rseq;
#[cfg(not(thiscpu_model))]
pub(crate) mod shared_file;
#[cfg(not(thiscpu_model))]
mod slots;
pub(crate) mod startup;
pub(crate) mod stderr;
pub(crate) mod topology;
pub(crate) mod waker;

/// The machine of this build: Linux, or a modelled one.
#[cfg(thiscpu_model)]
pub(crate) use crate::model::Model as Host;
#[cfg(not(thiscpu_model))]
pub(crate) use linux::Linux as Host;

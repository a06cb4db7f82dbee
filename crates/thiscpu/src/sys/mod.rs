//! The kernel's side: rseq registration, fences, CPU and NUMA topology, fork, locks.
//!
//! Nothing in here knows a lane or a counter. Everything may run on several threads at once and in
//! a signal handler unless it says otherwise; start-up takes no lock, so a handler that interrupts
//! it just does it again.

pub(crate) mod atomic;
pub(crate) mod double;
pub(crate) mod errno;
pub(crate) mod fence;
pub(crate) mod fork;
#[cfg(not(thiscpu_model))]
mod futex;
#[cfg(not(thiscpu_model))]
mod linux;
pub(crate) mod lock;
pub(crate) mod machine;
#[cfg(not(thiscpu_model))]
mod mapping;
pub(crate) mod membarrier;
pub(crate) mod pin;
pub(crate) mod report;
pub(crate) mod rseq;
pub(crate) mod say;
pub(crate) mod setting;
pub(crate) mod startup;
pub(crate) mod topology;
mod walk;

/// What the process runs on.
#[cfg(thiscpu_model)]
pub(crate) use crate::model::Model as Host;
#[cfg(not(thiscpu_model))]
pub(crate) use linux::Linux as Host;

/// How large a page is that is not huge.
fn page_bytes() -> usize {
    // SAFETY: sysconf reads a constant.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

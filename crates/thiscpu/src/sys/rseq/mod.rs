//! Restartable sequences: where a thread's rseq area is, and who registered it.
//!
//! glibc (2.35 and later) registers an area for each thread and publishes its offset from the
//! thread pointer. This library shares that registration: it never replaces it, and writes no
//! field but `rseq_cs`. Where glibc registers nothing (another libc, an older glibc, or the tunable
//! `glibc.pthread.rseq=0`), each thread registers an area of this library's own, in its static
//! TLS, at its first use. The registration ends with the thread; a destructor that runs later
//! finds a thread without a lane.
//!
//! `Documentation/userspace-api/rseq.rst` and `rseq(2)` specify the ABI.
//!
//! - `area`: the offsets of an area's fields, and of this library's own words;
//! - `index_ptr`: the thread-local pointer to the lane index, which direct sections load;
//! - `registration`: finding, making and ending registrations;
//! - `sample_left`: words of each thread for the heap profiles of malloc;
//! - `thread`: the contents of the calling thread's area;
//! - `vfork_word`: the thread-local word that keeps children of `vfork` out of lanes;
//! - `vfork`: setting that word.

pub(crate) mod area;
pub(crate) mod index_ptr;
pub(crate) mod registration;
#[cfg(not(thiscpu_model))]
pub(crate) mod sample_left;
mod thread;
pub(crate) mod vfork;
pub(crate) mod vfork_word;

#[cfg(not(thiscpu_model))]
pub use area::RSEQ_CS;
pub(crate) use area::{
    CPU_ID, OFFSETS, bypass_offset, is_unregistered_forever, no_lane_offset, set_bypass,
    unregistered_offset,
};
pub use registration::Registrar;
pub(crate) use registration::{Registration, probe, register_if_ours, unregister_forever};
#[cfg(not(thiscpu_model))]
pub(crate) use thread::{cpu_hint, cpu_or_any};
pub(crate) use thread::{index, is_registered, node};

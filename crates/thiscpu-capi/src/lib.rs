//! thiscpu from C: the functions and types of `thiscpu.h`.
//!
//! `cargo xtask header` generates the header from the items and documentation of these modules, so
//! their documentation is written for C programmers. Handles are boxes. Every function checks its
//! pointers and returns a [`status::Status`]; no panic leaves it.

#[cfg(panic = "abort")]
compile_error!(
    "thiscpu-capi needs panic = \"unwind\": it turns panics into statuses; change the profile"
);

pub mod acquire;
pub mod budget;
pub mod cache;
pub mod constructed;
pub mod counter;
pub mod counters;
pub mod degradation;
mod ffi;
mod inline_abi;
pub mod last_error;
pub mod lease;
pub mod ledger;
pub mod pair;
pub mod prefill;
pub mod rate;
pub mod reserve;
pub mod segment;
pub mod segment_view;
pub mod shared_acquire;
pub mod shared_budget;
pub mod shared_counter;
pub mod shared_counters;
pub mod shared_lease;
pub mod stack;
pub mod status;
pub mod sum_all;
pub mod tier;
pub mod vfork;
pub mod word;

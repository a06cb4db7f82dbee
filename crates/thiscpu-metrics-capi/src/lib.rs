//! thiscpu-metrics from C: the functions and types of `thiscpu_metrics.h`.
//!
//! `cargo xtask header` generates the header from the items and documentation of these modules, so
//! their documentation is written for C programmers. The library has its own copy of thiscpu, and
//! shows handles of `thiscpu.h` by callbacks. So it does not matter how a program links thiscpu.

#[cfg(panic = "abort")]
compile_error!(
    "thiscpu-metrics-capi needs panic = \"unwind\": it turns panics into statuses; change the \
     profile"
);

pub mod counter;
pub mod endpoint;
mod ffi;
pub mod gauge;
pub mod histogram;
pub mod labels;
pub mod last_error;
pub mod registry;
pub mod removal;
pub mod show;
pub mod status;

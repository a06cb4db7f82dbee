//! This library's own code on a modelled machine: `cargo xtask model`.
//!
//! Without `--cfg thiscpu_model` only the checker of histories is tested.

mod history;

#[cfg(thiscpu_model)]
mod counter;
#[cfg(thiscpu_model)]
mod exhaustive;
#[cfg(thiscpu_model)]
mod record;

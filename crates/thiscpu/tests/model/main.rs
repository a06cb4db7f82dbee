//! This library's own code on a modelled machine: `cargo xtask model`.
//!
//! Without `--cfg thiscpu_model` only the checker of histories is tested.

mod history;

#[cfg(thiscpu_model)]
mod budget;
#[cfg(thiscpu_model)]
mod budget_exhaustive;
#[cfg(thiscpu_model)]
mod counter;
#[cfg(thiscpu_model)]
mod counter_exhaustive;
#[cfg(thiscpu_model)]
mod counter_history;
#[cfg(thiscpu_model)]
mod ledger;
#[cfg(thiscpu_model)]
mod ledger_exhaustive;
#[cfg(thiscpu_model)]
mod slab;
#[cfg(thiscpu_model)]
mod slab_constructed;
#[cfg(thiscpu_model)]
mod slab_exhaustive;

/// How often each random test is run; `THISCPU_MODEL_RUNS` multiplies it.
#[cfg(thiscpu_model)]
fn executions(default: usize) -> usize {
    let times = std::env::var("THISCPU_MODEL_RUNS").ok();
    default * times.map_or(1, |times| times.parse().expect("THISCPU_MODEL_RUNS is a number"))
}

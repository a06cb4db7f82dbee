//! Model tests: the library's own code on a modeled machine (`cargo xtask model`).
//!
//! Files named `*_exhaustive` try every order of steps of a small test, with weak memory. The
//! others run longer tests in random orders. Without `--cfg thiscpu_model` only the checker of
//! histories is tested.

mod history;

#[cfg(thiscpu_model)]
mod budget;
#[cfg(thiscpu_model)]
mod budget_close;
#[cfg(thiscpu_model)]
mod budget_close_exhaustive;
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
mod ordering_exhaustive;
#[cfg(thiscpu_model)]
mod run;
#[cfg(thiscpu_model)]
mod shared_budget;
#[cfg(thiscpu_model)]
mod shared_budget_deaths;
#[cfg(thiscpu_model)]
mod shared_budget_exhaustive;
#[cfg(thiscpu_model)]
mod shared_budget_over_release;
#[cfg(thiscpu_model)]
mod shared_budget_wait;
#[cfg(thiscpu_model)]
mod shared_counter;
#[cfg(thiscpu_model)]
mod shared_counter_exhaustive;
#[cfg(thiscpu_model)]
mod shared_names;
#[cfg(thiscpu_model)]
mod shared_names_exhaustive;
#[cfg(thiscpu_model)]
mod slab;
#[cfg(thiscpu_model)]
mod slab_constructed;
#[cfg(thiscpu_model)]
mod slab_exhaustive;
#[cfg(thiscpu_model)]
mod slab_free_pages;
#[cfg(thiscpu_model)]
mod slab_large;

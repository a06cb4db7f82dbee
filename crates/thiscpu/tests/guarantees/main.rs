//! Scenarios for each guarantee, run in each tier.
//!
//! A filter is a list of parts of names: `cargo test --test guarantees bounds` runs the scenarios
//! of one structure, `... rseq_cpu` those of one tier, and `... bounds,words` those of two
//! structures.

mod adds;
mod bounds;
mod budget;
mod budget_close;
mod budget_forks;
mod budget_over_release;
mod budget_owned;
mod budget_waiters;
mod cancellation;
mod common;
mod compare_set_take;
mod degradations;
mod first_use;
mod forks;
mod in_flight;
mod ledger;
mod ledger_single_step;
mod memory;
mod memory_return;
mod pairs;
mod plugin;
mod properties;
mod rate;
mod rate_forks;
mod rate_waiters;
mod rate_window;
mod sandbox;
mod segment;
mod segment_budget;
mod segment_budget_kills;
mod segment_budget_over_release;
mod segment_budget_tasks;
mod segment_budget_wakers;
mod segment_cpusets;
mod segment_files;
mod segment_kills;
mod segment_lost;
mod segment_objects;
mod segment_participants;
mod segment_processes;
mod segment_slots;
mod segment_traced;
mod segment_versions;
mod segment_view;
mod signals;
mod single_step;
mod slab;
mod slab_constructed;
mod slab_constructed_forks;
mod slab_constructed_prefill;
mod slab_direct;
mod slab_forks;
mod slab_free_pages;
mod slab_heap_errors;
mod slab_low_memory;
mod slab_memory;
mod slab_sandbox;
mod slab_shards;
mod stack_use;
mod stacks;
mod sums;
mod thread_exit;
mod tiers;
mod vforks;
mod words;

use std::process::ExitCode;

macro_rules! scenarios_of {
    ($($file:ident),*) => {
        [$($file::SCENARIOS),*].concat()
    };
}

fn main() -> ExitCode {
    common::run(&scenarios_of! {
        adds, bounds, budget, budget_close, budget_forks, budget_over_release, budget_owned,
        budget_waiters, cancellation, compare_set_take, degradations, first_use, forks,
        in_flight, ledger, ledger_single_step, memory, memory_return, pairs, plugin,
        properties, rate, rate_forks, rate_waiters, rate_window, sandbox, segment, segment_budget,
        segment_budget_kills,
        segment_budget_over_release, segment_budget_tasks, segment_budget_wakers,
        segment_cpusets, segment_files, segment_kills, segment_lost, segment_objects,
        segment_participants, segment_processes, segment_slots, segment_traced,
        segment_versions, segment_view, signals, single_step, slab, slab_constructed,
        slab_constructed_forks, slab_constructed_prefill, slab_direct, slab_forks,
        slab_free_pages, slab_heap_errors, slab_low_memory, slab_memory, slab_sandbox,
        slab_shards, stack_use, stacks, sums, thread_exit, tiers, vforks, words
    })
}

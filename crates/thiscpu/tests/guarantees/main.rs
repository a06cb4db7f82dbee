//! Scenarios for each guarantee, run in each tier.
//!
//! A filter is a list of parts of names: `cargo test --test guarantees bounds` runs the scenarios
//! of one structure, `... rseq_cpu` those of one tier, and `... bounds,words` those of two
//! structures.

mod adds;
mod bounds;
mod budget;
mod budget_forks;
mod budget_waiters;
mod common;
mod compare_set_take;
mod first_use;
mod forks;
mod ledger;
mod ledger_single_step;
mod memory;
mod pairs;
mod plugin;
mod properties;
mod sandbox;
mod signals;
mod single_step;
mod slab;
mod slab_constructed;
mod slab_constructed_forks;
mod slab_direct;
mod slab_forks;
mod slab_heap_errors;
mod slab_low_memory;
mod slab_memory;
mod slab_sandbox;
mod slab_shards;
mod stacks;
mod sums;
mod thread_exit;
mod tiers;
mod words;

use std::process::ExitCode;

fn main() -> ExitCode {
    let files = [
        adds::SCENARIOS,
        bounds::SCENARIOS,
        budget::SCENARIOS,
        budget_forks::SCENARIOS,
        budget_waiters::SCENARIOS,
        compare_set_take::SCENARIOS,
        first_use::SCENARIOS,
        forks::SCENARIOS,
        ledger::SCENARIOS,
        ledger_single_step::SCENARIOS,
        memory::SCENARIOS,
        pairs::SCENARIOS,
        plugin::SCENARIOS,
        properties::SCENARIOS,
        sandbox::SCENARIOS,
        signals::SCENARIOS,
        single_step::SCENARIOS,
        slab::SCENARIOS,
        slab_constructed::SCENARIOS,
        slab_constructed_forks::SCENARIOS,
        slab_direct::SCENARIOS,
        slab_forks::SCENARIOS,
        slab_heap_errors::SCENARIOS,
        slab_low_memory::SCENARIOS,
        slab_memory::SCENARIOS,
        slab_sandbox::SCENARIOS,
        slab_shards::SCENARIOS,
        stacks::SCENARIOS,
        sums::SCENARIOS,
        thread_exit::SCENARIOS,
        tiers::SCENARIOS,
        words::SCENARIOS,
    ];
    common::run(&files.concat())
}

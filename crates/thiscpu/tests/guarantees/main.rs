//! A test for each promise, in each tier, that fails when the promise is broken.
//!
//! `cargo test --test guarantees bounds` runs those of one structure, `... rseq_cpu` one tier's,
//! `... bounds,words` those of two.

mod bounds;
mod budget;
mod budget_forks;
mod budget_waiters;
mod common;
mod counts;
mod exits;
mod first_use;
mod forks;
mod instants;
mod ledger;
mod ledger_steps;
mod limits;
mod memory;
mod pairs;
mod plugin;
mod properties;
mod sandbox;
mod signals;
mod slab;
mod slab_constructed;
mod slab_constructed_forks;
mod slab_faults;
mod slab_forks;
mod slab_limits;
mod slab_memory;
mod slab_near;
mod slab_parts;
mod slab_sandbox;
mod stacks;
mod steps;
mod tiers;
mod words;

use std::process::ExitCode;

fn main() -> ExitCode {
    let files = [
        bounds::SCENARIOS,
        budget::SCENARIOS,
        budget_forks::SCENARIOS,
        budget_waiters::SCENARIOS,
        counts::SCENARIOS,
        exits::SCENARIOS,
        first_use::SCENARIOS,
        forks::SCENARIOS,
        instants::SCENARIOS,
        ledger::SCENARIOS,
        ledger_steps::SCENARIOS,
        limits::SCENARIOS,
        memory::SCENARIOS,
        pairs::SCENARIOS,
        plugin::SCENARIOS,
        properties::SCENARIOS,
        sandbox::SCENARIOS,
        signals::SCENARIOS,
        slab::SCENARIOS,
        slab_constructed::SCENARIOS,
        slab_constructed_forks::SCENARIOS,
        slab_faults::SCENARIOS,
        slab_forks::SCENARIOS,
        slab_limits::SCENARIOS,
        slab_memory::SCENARIOS,
        slab_near::SCENARIOS,
        slab_parts::SCENARIOS,
        slab_sandbox::SCENARIOS,
        stacks::SCENARIOS,
        steps::SCENARIOS,
        tiers::SCENARIOS,
        words::SCENARIOS,
    ];
    common::run(&files.concat())
}

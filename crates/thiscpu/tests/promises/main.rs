//! A test for each promise, in each tier, that fails when the promise is broken.
//!
//! `cargo test --test promises bounds` runs one file's scenarios, `... rseq_cpu` one tier's.

mod bounds;
mod common;
mod counts;
mod exits;
mod first_use;
mod forks;
mod instants;
mod limits;
mod sandbox;
mod signals;
mod steps;

use std::process::ExitCode;

fn main() -> ExitCode {
    let files = [
        bounds::SCENARIOS,
        counts::SCENARIOS,
        sandbox::SCENARIOS,
        forks::SCENARIOS,
        exits::SCENARIOS,
        first_use::SCENARIOS,
        instants::SCENARIOS,
        limits::SCENARIOS,
        signals::SCENARIOS,
        steps::SCENARIOS,
    ];
    common::run(&files.concat())
}

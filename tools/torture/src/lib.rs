//! The torture test: all structures of `thiscpu` at once, under disturbances, with every unit
//! accounted for.
//!
//! Workers run random operations on all `structures`, while `disturbances` happen to them: signals
//! whose handlers use the same structures, moves to other CPUs, forks whose children check their
//! own copies, threads that come and go, threads that have no lane. Each worker records what it
//! does in an oracle. During the run, every answer is checked against what the oracle allows. After
//! the run, every structure must hold exactly what the oracle says.
//!
//! What each worker does follows from the seed. When the kernel interrupts it does not.

mod disturbances;
mod handlers;
mod oracle;
mod plan;
mod progress;
mod report;
mod run;
mod shared;
mod spawn;
mod structures;
mod violation;
mod watchdog;
mod worker;

pub use crate::{
    plan::{
        DEFAULT_SECONDS, Options, Plan, SECONDS_MAX, THREADS_MAX, THREADS_PER_CPU, parse_seconds,
        parse_seed, parse_threads,
    },
    report::Report,
    run::run,
    violation::{Failure, Finder, Violation},
};

//! Everything of `thiscpu` at once, under everything that can go wrong, with every unit accounted
//! for.
//!
//! Workers do random operations on all `structures` while what is in `disturb` happens to them:
//! signals whose handlers use the same structures, moves to other CPUs, forks whose children check
//! their own books, threads that come and go, threads that have no lane. Each worker keeps its own
//! `books`. While all this runs, answers are checked against what they can be; when it has ended,
//! every structure must come to exactly what the books say.
//!
//! What each worker does follows from the seed; when the kernel interrupts it does not.

mod books;
mod cpus;
mod disturb;
mod plan;
mod progress;
mod report;
mod run;
mod stop;
mod structures;
mod watchdog;
mod worker;
mod world;
mod wrong;

pub use crate::{
    plan::{
        DEFAULT_SECONDS, Options, Plan, SECONDS_MAX, THREADS_MAX, THREADS_PER_CPU, parse_seconds,
        parse_seed, parse_threads,
    },
    report::Report,
    run::run,
    wrong::{Failure, Finder, Wrong},
};

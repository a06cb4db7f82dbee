//! The benchmark of `thiscpu`: workloads, contenders and the report.
//!
//! A [`Plan`] is made of [`Options`] and holds [`Case`]s: one thing measured for several contenders
//! with one number of threads. Running a case measures every contender once a round, so that a
//! machine that drifts hits all alike, and gives an [`Outcome`], of which [`report`] makes lines of
//! JSON or a table.
//!
//! Everything is generic over the contender, and so compiled once for each: no call in a measured
//! loop goes through a pointer. The time of an operation is what a thread sees while it runs: with a
//! thread a CPU at most, the time of all threads without what they waited for other programs, divided
//! by their operations; with more, wall time, times the CPUs, divided by the same.

mod case;
mod children;
mod contenders;
mod cpus;
mod deviations;
mod interrupt;
mod kind;
mod metric;
mod plan;
mod progress;
pub mod report;
mod resident;
mod rseq;
mod slice;
mod stats;
mod turns;
mod words;
mod workloads;

pub use crate::{
    case::{Case, Outcome},
    contenders::Name,
    deviations::{Class, Deviations},
    plan::{
        DEFAULT_ROUNDS, DEFAULT_SECONDS, Options, Plan, SECONDS_MAX, THREADS_MAX, parse_seconds,
        parse_threads,
    },
    progress::Progress,
    workloads::{Workload, memory, object},
};

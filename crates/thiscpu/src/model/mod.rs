//! A modelled machine, on which model checkers run this library's own code.
//!
//! Built with `--cfg thiscpu_model` only. Everything above `sys` and `section` is the code that
//! ships. Four things are replaced: memory (`sys::atomic`), the machine (`sys::machine`), sections,
//! and the 16-byte exchange.
//!
//! The machine has CPUs on which threads are placed and moved, a fence, futexes, and lane indices
//! that the test chooses. A checker decides which thread takes the next step: shuttle randomly in
//! long runs, loom exhaustively and with weak memory. docs/testing.md says what they can and cannot
//! see.
//!
//! Each atomic keeps the value it was created with forever. The modelled program's stores live in
//! the execution and end with it. So statics start over in each execution. An object must not be
//! dropped before the execution ends if another may take its place.

pub(crate) mod atomic;
mod checker;
mod data;
pub(crate) mod double;
mod exhaustive;
mod machine;
mod memory;
mod random;
mod sections;

pub use data::Data;
pub use exhaustive::exhaustive;
pub use machine::{
    Machine, Thread, advance_clock_1s, choose, interrupted_after, killed_after, leave_lanes,
    run_on, spawn, tick,
};
pub(crate) use machine::{Model, local, tier};
pub use random::{Schedule, random};

pub use crate::segment::{
    NoRoom, Place, Process, SharedBudgets, SharedCounters, SharedNames, WaitResult,
};
pub(crate) use sections::Processor;

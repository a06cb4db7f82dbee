//! A modelled machine, on which model checkers run this library's own code.
//!
//! Built with `--cfg thiscpu_model` only. Everything above `sys` and `section` is the code that
//! ships; what is replaced is memory (`sys::atomic`), the machine (`sys::machine`), sections and the
//! 16-byte exchange. The machine has CPUs on which threads are placed and moved, a fence, futexes,
//! and lane indices that the test chooses. A checker decides which thread takes the next step:
//! shuttle at random and for long, loom exhaustively and with weak memory. docs/testing.md says what
//! that can and cannot see.
//!
//! Memory: each atomic keeps the value it was made with, for ever; what the modelled program stores
//! lives in the execution and ends with it. So statics start afresh in each execution, and an
//! object must not be dropped before the execution ends if another may take its place.

pub(crate) mod atomic;
mod checker;
pub(crate) mod double;
mod exhaustive;
mod machine;
mod memory;
mod random;
mod sections;

pub use exhaustive::exhaustive;
pub use machine::{Machine, Thread, advance_clock_1s, choose, leave_lanes, run_on, spawn, tick};
pub(crate) use machine::{Model, local, tier};
pub use random::{Schedule, random};
pub(crate) use sections::Processor;

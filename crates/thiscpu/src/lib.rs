//! thiscpu: per-CPU data for ordinary Linux programs.

mod counter;
mod error;
mod lanes;
#[doc(hidden)]
pub mod probe;
mod quiesce;
mod section;
mod sys;

pub use counter::{Bounds, Compared, Counter, Counters};
pub use error::Error;
pub use lanes::{HalfWord, Integer, Link, PerCpu, PerCpuPair, PerCpuStack, Word};
pub use sys::report::{Report, report};
pub use sys::rseq::Registrar;
pub use sys::tier::{Tier, tier};
pub use sys::topology::CpuSet;

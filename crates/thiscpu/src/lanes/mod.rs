//! Per-CPU memory: where lanes live, who has one, and plain per-CPU variables.

pub(crate) mod front;
pub(crate) mod here;
mod item;
mod pair;
mod percpu;
pub(crate) mod region;
mod slow;
mod stack;
pub(crate) mod table;
mod word;

pub use pair::{HalfWord, PerCpuPair};
pub use percpu::PerCpu;
pub use stack::{Link, PerCpuStack};
pub use word::{Integer, Word};

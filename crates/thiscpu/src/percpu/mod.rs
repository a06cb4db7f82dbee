//! Per-CPU variables: a word, a pair of words, a stack of nodes.
//!
//! - `variable`: [`PerCpu`], one word;
//! - `pair`: [`PerCpuPair`], two adjacent words that change together;
//! - `stack`: [`PerCpuStack`], an intrusive list;
//! - `word`: the types that a word may have;
//! - `shared`: what an operation does when its section did not commit.

mod pair;
mod shared;
mod stack;
mod variable;
mod word;

pub use pair::{PairWord, PerCpuPair};
pub use stack::{Link, PerCpuStack};
pub use variable::PerCpu;
pub use word::{PerCpuInt, PerCpuWord};

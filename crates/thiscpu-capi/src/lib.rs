//! thiscpu from C: the functions and types of `thiscpu.h`, which is made of the words here by `cargo xtask header`.
//!
//! Handles are boxes. Every function looks at its pointers, and answers with a [`status::Status`]; no panic leaves it.

#[cfg(panic = "abort")]
compile_error!(
    "thiscpu-capi turns panics into statuses; with panic = \"abort\" there would be nothing to turn"
);

pub mod budget;
pub mod cache;
pub mod counter;
mod ffi;
mod inline_abi;
pub mod ledger;
pub mod pair;
pub mod stack;
pub mod status;
pub mod tier;
pub mod word;

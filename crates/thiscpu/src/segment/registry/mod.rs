//! Named series that any process inserts and removes.
//!
//! - `chain`: the protocol of the index;
//! - `modeled`: series in a static, for the model, which has no files.

mod chain;
#[cfg(thiscpu_model)]
mod modeled;

#[cfg(thiscpu_model)]
pub use self::modeled::{NoRoom, SharedNames};

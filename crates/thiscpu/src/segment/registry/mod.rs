//! Named series that processes share: families with labels, inserted by any participant.
//!
//! - `check`: whether all of a registry fits together;
//! - `family`: families and series;
//! - `free_list`: a list of free cells or records;
//! - `head`: the start of a registry, its index and its cells;
//! - `index`: the protocol by which names are published;
//! - `insert`: finding and inserting families and series;
//! - `memory`: memory for families and series;
//! - `modeled`: the protocol in a static, for the model, which has no files;
//! - `names`: which names are allowed;
//! - `record`: the records of families and series;
//! - `scrape`: the values of all series at one instant;
//! - `shared`: the registry of an attached segment;
//! - `usage`: how much of a registry is in use;
//! - `view`: registries of segments that a process can only read.

#[cfg(not(thiscpu_model))]
pub(super) mod check;
#[cfg(not(thiscpu_model))]
pub(super) mod family;
mod free_list;
#[cfg(not(thiscpu_model))]
mod head;
mod index;
#[cfg(not(thiscpu_model))]
mod insert;
#[cfg(not(thiscpu_model))]
mod memory;
#[cfg(thiscpu_model)]
mod modeled;
#[cfg(not(thiscpu_model))]
pub mod names;
#[cfg(not(thiscpu_model))]
mod record;
#[cfg(not(thiscpu_model))]
pub(super) mod scrape;
#[cfg(not(thiscpu_model))]
mod shared;
#[cfg(not(thiscpu_model))]
mod usage;
#[cfg(not(thiscpu_model))]
pub(super) mod view;

#[cfg(thiscpu_model)]
pub use self::modeled::{SharedFreeList, SharedNames};
#[cfg(not(thiscpu_model))]
pub use self::shared::SharedRegistry;
#[cfg(not(thiscpu_model))]
pub use self::usage::RegistryUsage;

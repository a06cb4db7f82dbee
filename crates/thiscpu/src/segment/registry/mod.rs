//! Named series that processes share: families with labels, inserted by any participant.
//!
//! - `family`: families and series;
//! - `head`: the start of a registry, its index and its cells;
//! - `index`: the protocol by which names are published;
//! - `insert`: finding and inserting families and series;
//! - `modeled`: the protocol in a static, for the model, which has no files;
//! - `names`: which names are allowed;
//! - `record`: the records of families and series;
//! - `scrape`: the values of all series at one instant;
//! - `shared`: the registry of an attached segment;
//! - `usage`: how much of a registry is in use;
//! - `view`: registries of segments that a process can only read;
//! - `walk`: a walk through the index that checks each entry.

#[cfg(not(thiscpu_model))]
pub(super) mod family;
#[cfg(not(thiscpu_model))]
mod head;
mod index;
#[cfg(not(thiscpu_model))]
mod insert;
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
#[cfg(not(thiscpu_model))]
pub(super) mod walk;

#[cfg(thiscpu_model)]
pub use self::modeled::SharedNames;
#[cfg(not(thiscpu_model))]
pub use self::shared::SharedRegistry;
#[cfg(not(thiscpu_model))]
pub use self::usage::RegistryUsage;

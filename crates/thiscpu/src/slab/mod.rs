//! Slab caches: objects of one size, which each CPU keeps some of.
//!
//! [`RawCache`] has all functions; [`Cache`] adds a type. docs/design/slab.md says how they work.
//!
//! The public types use `class`, which uses `backend`, which uses `arena`, which uses `lane`. No
//! module imports from one further up.

pub(crate) mod arena;
pub(crate) mod backend;
mod cache;
pub(crate) mod class;
mod constructed;
pub(crate) mod lane;
mod prefill;
mod raw;
mod raw_constructed;
mod stats;

pub use cache::{Cache, CacheBox};
pub use constructed::{Constructed, ConstructedCache};
pub use prefill::{ConstructedPrefilled, Prefilled, RawPrefilled};
pub use raw::{CacheInUse, GATE_AND_KEY_OFFSETS, RawCache};
#[cfg(not(thiscpu_model))]
pub use raw_constructed::RawConstructedCache;
pub use stats::CacheStats;

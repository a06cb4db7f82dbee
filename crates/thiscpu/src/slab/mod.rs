//! Slab caches: objects of one size, from arrays that each CPU has of its own.
//!
//! [`RawCache`] is the whole of it; [`Cache`] puts a type on top. How it works: docs/design/slab.md.
//!
//! Public types use `class`, which uses `backend`, which uses `arena`, which uses `lane`; none imports from one above it.

pub(crate) mod arena;
pub(crate) mod backend;
mod cache;
pub(crate) mod class;
mod constructed;
mod lane;
mod prefill;
mod raw;
mod stats;

pub use cache::{Cache, CacheBox};
pub use constructed::{Constructed, ConstructedCache};
pub use prefill::{Prefilled, RawPrefilled};
pub use raw::{CacheInUse, GATE_AND_KEY_OFFSETS, RawCache};
pub use stats::CacheStats;

//! Slab caches: objects of one size, from arrays that each CPU has of its own.
//!
//! [`RawCache`] is the whole of it; [`Cache`] puts a type on top. How it works: docs/design/slab.md.

pub(crate) mod barn;
mod bits;
mod cache;
mod capacity;
pub(crate) mod class;
pub(crate) mod close;
pub(crate) mod construct;
mod constructed;
mod depot;
mod entry;
pub(crate) mod fault;
mod ground;
mod lane;
pub mod large;
mod objects;
mod packed;
pub(crate) mod purge;
mod raw;
mod reserve;
mod runs;
mod sheaf;
mod shown;
mod slow;
pub(crate) mod space;
mod stats;
mod stock;

pub use cache::{Cache, Owned};
pub use constructed::{Constructed, ConstructedCache};
pub use raw::{GATE_AND_KEY_AT, RawCache, StillOut};
pub use reserve::{RawReserved, Reserved};
pub use stats::SlabStats;

//! What the allocator that is built on this library needs of it: not part of the API, and free to change.

pub use crate::slab::class::{CELL_BYTES, Class, Group, Handle};
pub use crate::slab::construct::Life;
pub use crate::slab::fault::Fault;
pub use crate::slab::large;
pub use crate::slab::purge::purge;
pub use crate::slab::space::{NOTHING, Tag, memory, tag_of, tag_of_block, watch};

use crate::sys::machine::{Here, Machine as _};

/// Nanoseconds by the coarse clock, which is a few milliseconds behind.
pub fn coarse_time() -> u64 {
    Here::coarse_time()
}

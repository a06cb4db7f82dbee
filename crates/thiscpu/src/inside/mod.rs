//! What the allocator and the library for C, which are built on this one, need of it: not part of the API, and free to change.

#[cfg(not(thiscpu_model))]
pub mod foreign;
#[cfg(not(thiscpu_model))]
pub mod front;
#[cfg(not(thiscpu_model))]
pub mod word;

pub use crate::section::{Access, DirectMalloc, Ready};
pub use crate::slab::arena::heap_error::HeapError;
pub use crate::slab::arena::large;
pub use crate::slab::arena::purge::{purge, purge_some_if_excess};
pub use crate::slab::arena::{NOTHING, Tag, disable_fast_free, fast_tag_of, memory, tag_of};
pub use crate::slab::backend::node_slabs::outside_by_tag;
pub use crate::slab::class::Lifecycle;
pub use crate::slab::class::shrink::Fence;
pub use crate::slab::class::{CELL_BYTES, Class, Group, Handle};

/// Whether there is a way by the front.
pub const HAS_DIRECT: bool = crate::lanes::direct::HAS_DIRECT;

use crate::sys::Host;
use crate::sys::machine::Machine as _;
use crate::sys::{fence, startup};
use crate::tier::Tier;

/// Whether exact sums can be had by what the kernel has for them, or need nothing. Where not, who asks for one runs on every CPU, or panics.
pub fn has_sums() -> bool {
    startup::chosen() == Some(Tier::Atomic) || fence::by_membarrier()
}

/// Whether sections can be entered from now on, on any thread; they need not get anywhere. Never where there are none.
pub fn sections_are_ready() -> bool {
    crate::sys::rseq::OFFSETS.cpu_id() != 0
}

/// A number that differs between a process and its forked children.
pub fn generation() -> u32 {
    Host::generation()
}

/// Nanoseconds by the coarse clock, which is a few milliseconds behind.
pub fn coarse_time() -> u64 {
    Host::coarse_time()
}

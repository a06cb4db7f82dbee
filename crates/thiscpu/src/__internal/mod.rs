//! What `thiscpu-malloc`, `thiscpu-capi` and the program `thiscpu` use of this crate: not part of
//! the API, and free to change.
//!
//! - `malloc`: malloc and free in assembly;
//! - `capi`: what inlined C code has to know;
//! - `vfork`: a `vfork` whose children use the shared lane;
//! - `word`: handles of per-CPU words for C.

#[cfg(not(thiscpu_model))]
pub mod capi;
#[cfg(not(thiscpu_model))]
pub mod malloc;
#[cfg(not(thiscpu_model))]
pub mod vfork;
#[cfg(not(thiscpu_model))]
pub mod word;

use core::ffi::CStr;
use core::time::Duration;

use crate::sys::Host;
use crate::sys::atomic::AtomicU32;
use crate::sys::machine::Machine as _;
use crate::sys::{env, fence, startup};
use crate::tier::Tier;

pub use crate::section::{Access, DirectMalloc, Ready};
#[cfg(not(thiscpu_model))]
pub use crate::segment::inspect;
#[cfg(not(thiscpu_model))]
pub use crate::segment::registry::names;
pub use crate::slab::arena::free_pages::{
    error_in_slab, forget_slab_changes, have_slabs_changed, is_outside_slab,
};
pub use crate::slab::arena::heap_error::{HeapError, note_other_namespace};
pub use crate::slab::arena::large;
pub use crate::slab::arena::purge::{has_free_pages, purge, purge_some, purge_some_if_due};
pub use crate::slab::arena::usage::{Usage, usage};
pub use crate::slab::arena::{
    LANELESS, NO_TAG, Tag, disable_fast_free, fast_tag_of, memory, tag_of,
};
pub use crate::slab::backend::barn::Window;
pub use crate::slab::backend::free_pages::SlabPages;
pub use crate::slab::backend::node_slabs::objects_by_tag;
pub use crate::slab::class::Lifecycle;
pub use crate::slab::class::free_pages::{Dropped, drop_free_pages};
pub use crate::slab::class::shrink::Fence;
pub use crate::slab::class::{CELL_BYTES, Class, Group, Handle};
pub use crate::slab::lane::countdown::Countdown;
#[cfg(not(thiscpu_model))]
pub use crate::sys::chained_handler::ChainedHandler;
pub use crate::sys::errno::{Saved, save as save_errno};
pub use crate::sys::lock::{Guard, Lock};
#[cfg(not(thiscpu_model))]
pub use crate::sys::quiet_thread::with_signals_blocked;
#[cfg(not(thiscpu_model))]
pub use crate::sys::rseq::sample_left::sample_left;
pub use crate::sys::startup::WARNED_MARK;
pub use crate::sys::stderr::write_line;

/// Whether this target has direct sections.
pub const HAS_DIRECT: bool = crate::lanes::direct::HAS_DIRECT;

/// Returns the tier, or chooses the best one if `THISCPU_TIER` is wrong.
///
/// An allocator calls this before its first use of anything else. A wrong `THISCPU_TIER` is a
/// warning on standard error, once, unless it begins with [`WARNED_MARK`]. Allocates nothing; costs
/// a load once the tier is chosen.
pub fn tier_or_best() -> Tier {
    startup::tier_or_best()
}

/// Calls `look` with the value of an environment variable, or `None` if it is not set.
///
/// The value is `None`, too, in a privileged program. Allocates nothing, keeps `errno`, and finds
/// variables even before the C library does.
pub fn env_var<T>(name: &CStr, look: impl FnOnce(Option<&[u8]>) -> T) -> T {
    env::var(name, look)
}

/// Returns whether exact sums need no fence, or the kernel's fence works.
///
/// If not, a thread that asks for an exact sum runs on every CPU, or panics.
pub fn has_sums() -> bool {
    startup::chosen() == Some(Tier::Atomic) || fence::by_membarrier()
}

/// Returns whether any thread may enter sections from now on.
///
/// A section may still be refused or aborted. Always false if this process has no sections.
pub fn sections_are_ready() -> bool {
    crate::sys::rseq::OFFSETS.cpu_id() != 0
}

/// Returns a number that differs between a process and its forked children.
pub fn generation() -> u32 {
    Host::generation()
}

/// Sleeps while a word holds `expected`, for at most `timeout`. May return spuriously.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    Host::wait(word, expected, timeout);
}

/// Wakes all threads that sleep on a word.
pub fn wake(word: &AtomicU32) {
    Host::wake(word, i32::MAX);
}

/// Returns nanoseconds by the coarse clock, which lags by a few milliseconds.
pub fn coarse_time() -> u64 {
    Host::coarse_time()
}

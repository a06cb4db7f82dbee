//! A malloc with a cache on each CPU: for Rust programs, as their global allocator,
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: thiscpu_malloc::ThisCpuAlloc = thiscpu_malloc::ThisCpuAlloc::new();
//! # fn main() {}
//! ```
//!
//! and for any dynamically linked program, by `thiscpu run` or by preloading
//! `libthiscpu_malloc.so`.
//!
//! There are 185 size classes for blocks of up to 4 MiB. Each works like a
//! [`thiscpu::RawCache`], whose documentation says what calls cost and when they may block. Larger
//! blocks are runs of 64 KiB.
//!
//! Nothing in this crate allocates from Rust's allocator, and threads need no setup. So blocks can
//! be allocated and freed before `main`, in destructors of thread-local variables, after a thread's
//! exit, and in children of `fork`. Signal handlers must not allocate or free.

// The definition in the document leads to a file of the repository; the first one counts.
/// The user guide: what the allocator guarantees, and how to use it, in Rust and preloaded.
///
/// [Benchmarks]: https://github.com/thiscpu/thiscpu/blob/main/docs/benchmarks.md#allocators-1
/// [glossary]: https://github.com/thiscpu/thiscpu/blob/main/docs/glossary.md
/// [profile]: https://github.com/thiscpu/thiscpu/blob/main/docs/design/profile.md
/// [slab]: https://github.com/thiscpu/thiscpu/blob/main/docs/design/slab.md
#[cfg(any(doc, doctest))]
#[doc = include_str!("../docs/malloc.md")]
pub mod guide {}

mod alloc;
mod allowance;
mod background;
mod classes;
mod decay;
/// For the preloaded library; not part of the API, and may change at any time.
#[doc(hidden)]
pub mod export;
mod fast_path;
mod free;
mod free_pages;
mod guard;
mod heap;
mod large_class;
pub mod profile;
mod random;
mod resize;
mod scavenge;
mod settings;
mod stack;
mod stats;
mod stats_json;

pub use alloc::{allocate, allocate_aligned, allocate_aligned_zeroed, allocate_zeroed};
pub use fast_path::{enable_counting, enable_hardening, is_counting};
pub use free::free;
pub use resize::{resize, usable_size};
pub use scavenge::trim;
pub use settings::{Setting, SettingError, set, settings};
pub use stats::{ClassStats, Stats, class_stats, stats};
pub use stats_json::{stats_json, write_stats_json};

/// For tests; not part of the API, and may change at any time.
#[doc(hidden)]
pub mod __test_support {
    pub use crate::fast_path::sample_every;
    pub use crate::guard::{allocate as guard, owns as is_guarded, sample};
    pub use crate::heap::bytes_outside_slabs;
}

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{self, NonNull};

/// The allocator, for `#[global_allocator]`.
///
/// A shared object that contains it stays loaded once the allocator was used.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThisCpuAlloc;

impl ThisCpuAlloc {
    /// Returns the allocator.
    #[must_use]
    pub const fn new() -> ThisCpuAlloc {
        ThisCpuAlloc
    }
}

fn to_pointer(block: Option<NonNull<u8>>) -> *mut u8 {
    block.map_or(ptr::null_mut(), NonNull::as_ptr)
}

// SAFETY: blocks have at least the requested size and alignment, and exactly one owner until they
// are freed. No function unwinds: an invalid `THISCPU_TIER` is only a warning here.
unsafe impl GlobalAlloc for ThisCpuAlloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        to_pointer(match layout.align() {
            // Every block is aligned to 8 bytes.
            ..=8 => allocate(layout.size()),
            align => allocate_aligned(layout.size(), align),
        })
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the caller guarantees that this allocator returned the block, so it is not null,
        // and that nothing uses it any more.
        unsafe { free(NonNull::new_unchecked(block)) };
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        to_pointer(match layout.align() {
            ..=8 => allocate_zeroed(layout.size()),
            align => allocate_aligned_zeroed(layout.size(), align),
        })
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller guarantees that this allocator returned the block, so it is not null.
        let block = unsafe { NonNull::new_unchecked(block) };
        // SAFETY: the caller guarantees that the block has this layout and that no pointer to it is
        // used afterwards.
        to_pointer(unsafe { resize::resize_aligned(block, size, layout.align()) })
    }
}

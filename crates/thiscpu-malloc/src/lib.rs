//! malloc from a cache on each CPU: for Rust programs, as their global allocator,
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: thiscpu_malloc::ThisCpuAlloc = thiscpu_malloc::ThisCpuAlloc::new();
//! # fn main() {}
//! ```
//!
//! and for any dynamically linked program, by `thiscpu run` or by preloading `libthiscpu_malloc.so`.
//!
//! Blocks of up to 32 KiB come from a [`thiscpu::RawCache`] for each of 73 size classes; see there for what a call costs and whom it
//! may block. Larger ones are runs of 64 KiB. Nothing here allocates from Rust's allocator, or has to be set up for a thread:
//! blocks can be allocated and freed before `main`, in destructors of thread-local variables, after a thread's exit, and in
//! children of `fork`; not in signal handlers.

/// What it promises and how to use it, in Rust and under any program.
#[cfg(any(doc, doctest))]
#[doc = include_str!("../docs/malloc.md")]
pub mod guide {}

mod alloc;
mod classes;
/// For the preloaded library; not part of the API, and free to change.
#[doc(hidden)]
pub mod export;
mod fast_path;
mod free;
mod guard;
mod heap;
mod resize;
mod scavenge;
mod stats;

pub use alloc::{allocate, allocate_aligned, allocate_aligned_zeroed, allocate_zeroed};
pub use fast_path::{enable_counting, enable_hardening, is_counting};
pub use free::free;
pub use resize::{resize, usable_size};
pub use scavenge::trim;
pub use stats::{ClassStats, Stats, class_stats, stats};

/// For tests; not part of the API, and free to change.
#[doc(hidden)]
pub mod __test_support {
    pub use crate::fast_path::sample_every;
    pub use crate::guard::{allocate as guard, owns as is_guarded, sample};
}

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{self, NonNull};

/// The allocator, for `#[global_allocator]`.
///
/// In a shared object that is loaded under way, and may be unloaded, it keeps that object loaded.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThisCpuAlloc;

impl ThisCpuAlloc {
    /// The allocator.
    #[must_use]
    pub const fn new() -> ThisCpuAlloc {
        ThisCpuAlloc
    }
}

fn pointer(block: Option<NonNull<u8>>) -> *mut u8 {
    block.map_or(ptr::null_mut(), NonNull::as_ptr)
}

// SAFETY: blocks are as large and as aligned as was asked for, and nobody else's until they are freed; nothing unwinds, because a
// wrong `THISCPU_TIER` is no error here.
unsafe impl GlobalAlloc for ThisCpuAlloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        pointer(match layout.align() {
            // What every block has.
            ..=8 => allocate(layout.size()),
            align => allocate_aligned(layout.size(), align),
        })
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the caller's promise: it is a block, hence not null.
        unsafe { free(NonNull::new_unchecked(block)) };
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        pointer(match layout.align() {
            ..=8 => allocate_zeroed(layout.size()),
            align => allocate_aligned_zeroed(layout.size(), align),
        })
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise: it is a block, hence not null.
        let block = unsafe { NonNull::new_unchecked(block) };
        // SAFETY: as above.
        pointer(unsafe { resize::resize_aligned(block, size, layout.align()) })
    }
}

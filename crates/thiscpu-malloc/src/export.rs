//! `malloc` and `free` as functions of their own, to be exported by the preloaded library.
//!
//! On x86-64 they are written in assembly. The fast path of each is in two cache lines, and jumps
//! into the chains of `alloc.rs` and `free.rs` are behind it. Elsewhere they are compiled from the
//! functions that the Rust allocator inlines.

use core::ptr::{self, NonNull};

pub use thiscpu;

pub use crate::alloc::{alloc_cold, alloc_fast_or};
pub use crate::classes::{CELLS, SMALL_SIZE_MAX};
pub use crate::fast_path::MALLOC_LIMIT;
pub use crate::free::{free_fast, free_gated, free_general};
pub use crate::profile::INTERVAL;
pub use crate::settings::{Assignment, ExitStats, exit_stats, try_write_profile};
pub use crate::stack::forget_rules;
pub use crate::stats::{ClassTotals, Totals};

/// Allocates a block that [`define_malloc`](crate::define_malloc)'s function did not find.
///
/// `is_counted` is its second argument. Calls `cold` with the size and its cell if this CPU has no
/// block; that ends with [`alloc_cold`] and says what a failure means. `cold` is called by a jump
/// if it is `extern "C-unwind"` and this function is inlined into another such one.
#[inline(always)]
pub fn alloc_gated<T>(
    size: usize,
    is_counted: bool,
    cold: impl Fn(usize, usize) -> *mut T,
) -> *mut T {
    let cold = |size, cell| NonNull::new(cold(size, cell).cast());
    crate::alloc::alloc_gated_or(size, is_counted, cold)
        .map_or(ptr::null_mut(), |block| block.as_ptr().cast())
}

/// Defines a function that allocates from this CPU's lane, or returns what `gated` returns.
///
/// `gated` is an `extern "C-unwind"` function of a size, and of whether it is counted, that calls
/// [`alloc_gated`](crate::export::alloc_gated).
#[cfg(target_arch = "x86_64")]
#[doc(hidden)]
#[macro_export]
macro_rules! define_malloc {
    (
        $(#[$attribute:meta])* $visibility:vis fn $name:ident() -> $block:ty,
        in $section:literal, gated: $gated:path
    ) => {
        $crate::export::thiscpu::define_malloc_fn!(
            $(#[$attribute])* $visibility fn $name() -> $block, in $section,
            cells: $crate::export::CELLS, largest: $crate::export::SMALL_SIZE_MAX,
            limit: $crate::export::MALLOC_LIMIT, interval: $crate::export::INTERVAL,
            gated: $gated
        );
    };
}

/// Defines a function that allocates from this CPU's lane, or returns what `gated` returns.
///
/// `gated` is an `extern "C-unwind"` function of a size, and of whether it is counted, that calls
/// [`alloc_gated`](crate::export::alloc_gated).
#[cfg(not(target_arch = "x86_64"))]
#[doc(hidden)]
#[macro_export]
macro_rules! define_malloc {
    (
        $(#[$attribute:meta])* $visibility:vis fn $name:ident() -> $block:ty,
        in $section:literal, gated: $gated:path
    ) => {
        $(#[$attribute])*
        #[inline(never)]
        $visibility extern "C-unwind" fn $name(size: usize) -> $block {
            let gated = |size| core::ptr::NonNull::new($gated(size, false).cast());
            match $crate::export::alloc_fast_or(size, gated) {
                Some(block) => block.as_ptr().cast(),
                None => core::ptr::null_mut(),
            }
        }
    };
}

/// Defines a function that frees a block, or does nothing for null.
///
/// # Safety
///
/// The function may be called with null, or with an allocated block of this crate that nothing uses
/// any more.
#[cfg(target_arch = "x86_64")]
#[doc(hidden)]
#[macro_export]
macro_rules! define_free {
    ($(#[$attribute:meta])* $visibility:vis fn $name:ident($block:ty), in $section:literal) => {
        $crate::export::thiscpu::define_free_fn!(
            $(#[$attribute])* $visibility fn $name($block), in $section,
            general: $crate::export::free_general, gated: $crate::export::free_gated
        );
    };
}

/// Defines a function that frees a block, or does nothing for null.
///
/// # Safety
///
/// The function may be called with null, or with an allocated block of this crate that nothing uses
/// any more.
#[cfg(not(target_arch = "x86_64"))]
#[doc(hidden)]
#[macro_export]
macro_rules! define_free {
    ($(#[$attribute:meta])* $visibility:vis fn $name:ident($block:ty), in $section:literal) => {
        $(#[$attribute])*
        #[inline(never)]
        $visibility unsafe extern "C-unwind" fn $name(block: $block) {
            // SAFETY: the caller guarantees that the pointer is null or an
            // allocated block that is not used any more.
            unsafe { $crate::export::free_fast(block.cast()) };
        }
    };
}

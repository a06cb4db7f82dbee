//! malloc and free as functions of their own, which are the shortest way and jumps out of it: for the preloaded library, and
//! whoever measures what that has. Where there are sections by the front they are in assembly.

pub use thiscpu;

#[cfg(not(target_arch = "x86_64"))]
pub use crate::alloc::allocate_at_hand;
pub use crate::alloc::{allocate_far, allocate_near};
pub use crate::classes::{CELLS, LOOKED_UP};
#[cfg(not(target_arch = "x86_64"))]
pub use crate::free::free_or_null;
pub use crate::free::{free_farther, free_otherwise_or_null};
pub use crate::heap::GROUP;

/// Defines a function that allocates, if this CPU's lane has what is wanted at hand; else its caller gets what `farther` returns,
/// which has to ask [`allocate_near`], and then [`allocate_far`].
#[cfg(target_arch = "x86_64")]
#[doc(hidden)]
#[macro_export]
macro_rules! define_malloc {
    ($(#[$attribute:meta])* $visibility:vis fn $name:ident() -> $block:ty, in $section:literal, farther: $farther:path) => {
        $crate::export::thiscpu::define_front_alloc!(
            $(#[$attribute])* $visibility fn $name() -> $block, in $section,
            cells: $crate::export::CELLS, most: $crate::export::LOOKED_UP, group: $crate::export::GROUP, farther: $farther
        );
    };
}

/// The same.
#[cfg(not(target_arch = "x86_64"))]
#[doc(hidden)]
#[macro_export]
macro_rules! define_malloc {
    ($(#[$attribute:meta])* $visibility:vis fn $name:ident() -> $block:ty, in $section:literal, farther: $farther:path) => {
        $(#[$attribute])*
        #[inline(never)]
        $visibility extern "C-unwind" fn $name(size: usize) -> $block {
            match $crate::export::allocate_at_hand(size) {
                Some(block) => block.as_ptr().cast(),
                None => $farther(size),
            }
        }
    };
}

/// Defines a function that frees what may be null, which is nothing.
///
/// # Safety
///
/// It is to be a block that nobody uses, or null.
#[cfg(target_arch = "x86_64")]
#[doc(hidden)]
#[macro_export]
macro_rules! define_free {
    ($(#[$attribute:meta])* $visibility:vis fn $name:ident($block:ty), in $section:literal) => {
        $crate::export::thiscpu::define_front_free!(
            $(#[$attribute])* $visibility fn $name($block), in $section, group: $crate::export::GROUP,
            otherwise: $crate::export::free_otherwise_or_null, farther: $crate::export::free_farther
        );
    };
}

/// The same.
#[cfg(not(target_arch = "x86_64"))]
#[doc(hidden)]
#[macro_export]
macro_rules! define_free {
    ($(#[$attribute:meta])* $visibility:vis fn $name:ident($block:ty), in $section:literal) => {
        $(#[$attribute])*
        #[inline(never)]
        $visibility unsafe extern "C-unwind" fn $name(block: $block) {
            // SAFETY: the caller's promise.
            unsafe { $crate::export::free_or_null(block.cast()) };
        }
    };
}

//! The caches: one for each size class.

use core::alloc::Layout;

use thiscpu::{RawCache, inside};

use crate::classes::{COUNT, size_of_class};

/// A cache on cache lines of its own.
#[repr(align(64))]
pub(crate) struct Class(pub(crate) RawCache);

pub(crate) static HEAP: [Class; COUNT] = {
    let mut heap = [const { Class(RawCache::new(Layout::new::<u64>())) }; COUNT];
    let mut class = 0;
    while class < COUNT {
        // All blocks begin at multiples of their size from a multiple of 64 KiB; 16 bytes is what C promises.
        let align = if class == 0 { 8 } else { 16 };
        let Ok(layout) = Layout::from_size_align(size_of_class(class), align) else {
            unreachable!()
        };
        core::mem::forget(core::mem::replace(
            &mut heap[class].0,
            inside::cache(layout, tag_of_class(class)),
        ));
        class += 1;
    }
    heap
};

/// What is said of the addresses of a class.
const fn tag_of_class(class: usize) -> u8 {
    assert!(class < 253);
    class as u8 + 1
}

/// The cache of a class.
#[inline(always)]
pub(crate) fn cache(class: usize) -> &'static RawCache {
    &HEAP[class].0
}

/// The class of the block at an address, if it is of one.
pub(crate) fn class_at(address: usize) -> Option<usize> {
    class_of_tag(inside::tag_of(address))
}

/// The same, and none while there are extras.
#[inline(always)]
pub(crate) fn class_at_first(address: usize) -> Option<usize> {
    class_of_tag(inside::tag_of_block(address))
}

#[inline(always)]
fn class_of_tag(tag: u8) -> Option<usize> {
    // No number, 0, becomes the highest.
    let class = usize::from(tag).wrapping_sub(1);
    (class < COUNT).then_some(class)
}

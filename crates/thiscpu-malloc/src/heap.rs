//! The heap: a class of objects for each size class.

use thiscpu::inside::{self, CELL_BYTES, Class, Group, Handle};

use crate::classes::{COUNT, size_of_class};

static GROUP: Group = Group::new(COUNT);

static CLASSES: [Class; COUNT] = {
    let mut classes = [const { Class::new(8, 8, 1) }; COUNT];
    let mut class = 0;
    while class < COUNT {
        // Objects are at multiples of their size from a multiple of 64 KiB; all but the first are multiples of 16, which is what C
        // promises.
        classes[class] = Class::new(size_of_class(class), 8, tag_of_class(class));
        class += 1;
    }
    classes
};

/// What is said of the addresses of a class.
const fn tag_of_class(class: usize) -> u8 {
    assert!(class < inside::TAG_MAX as usize);
    class as u8 + 1
}

/// The objects of a class.
pub(crate) fn objects(class: usize) -> Handle<'static> {
    objects_at(class * CELL_BYTES)
}

/// The objects of the class of a cell.
#[inline(always)]
pub(crate) fn objects_at(cell: usize) -> Handle<'static> {
    debug_assert!(cell < COUNT * CELL_BYTES);
    // SAFETY: there are so many.
    GROUP.handle(unsafe { CLASSES.get_unchecked(cell / CELL_BYTES) }, cell)
}

/// What a class has and has done.
pub(crate) fn stats(class: usize) -> thiscpu::SlabStats {
    CLASSES[class].stats()
}

/// The class of the block at an address, if it is of one.
pub(crate) fn class_at(address: usize) -> Option<usize> {
    cell_of_tag(inside::tag_of(address)).map(|cell| cell / CELL_BYTES)
}

/// The cell of its class, and none while there are extras.
#[inline(always)]
pub(crate) fn cell_at(address: usize) -> Option<usize> {
    cell_of_tag(inside::tag_of_block(address))
}

#[inline(always)]
fn cell_of_tag(tag: u8) -> Option<usize> {
    // No number, 0, becomes the highest.
    let class = usize::from(tag).wrapping_sub(1);
    (class < COUNT).then(|| class * CELL_BYTES)
}

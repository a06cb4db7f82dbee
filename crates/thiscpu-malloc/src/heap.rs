//! The heap: a class of objects for each size class.

use thiscpu::inside::{self, Class, Group, Handle};

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
#[inline(always)]
pub(crate) fn objects(class: usize) -> Handle<'static> {
    debug_assert!(class < COUNT);
    // SAFETY: there are so many.
    GROUP.handle(unsafe { CLASSES.get_unchecked(class) }, class)
}

/// What a class has and has done.
pub(crate) fn stats(class: usize) -> thiscpu::SlabStats {
    CLASSES[class].stats()
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

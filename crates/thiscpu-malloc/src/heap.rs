//! The heap: a class of objects for each size class.

use thiscpu::inside::{self, Class, Group, Handle, Tag};

use crate::classes::{COUNT, cell_of_class, class_of_cell, size_of_class};

/// With one cell that is no class's.
static GROUP: Group = Group::new(COUNT + 1);

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

/// What is said of the addresses of a class: its cell.
const fn tag_of_class(class: usize) -> Tag {
    assert!(cell_of_class(class) <= Tag::MAX as usize);
    cell_of_class(class) as Tag
}

/// The objects of a class.
pub(crate) fn objects(class: usize) -> Handle<'static> {
    objects_at(cell_of_class(class))
}

/// The objects of the class of a cell.
#[inline(always)]
pub(crate) fn objects_at(cell: usize) -> Handle<'static> {
    let class = class_of_cell(cell);
    debug_assert!(class < COUNT);
    // SAFETY: there are so many.
    GROUP.handle(unsafe { CLASSES.get_unchecked(class) }, cell)
}

/// What a class has and has done.
pub(crate) fn stats(class: usize) -> thiscpu::SlabStats {
    CLASSES[class].stats()
}

/// The class of the block at an address, if it is of one.
pub(crate) fn class_at(address: usize) -> Option<usize> {
    cell_of_tag(inside::tag_of(address)).map(class_of_cell)
}

/// The cell of its class, and none while there are extras.
#[inline(always)]
pub(crate) fn cell_at(address: usize) -> Option<usize> {
    cell_of_tag(inside::tag_of_block(address))
}

#[inline(always)]
fn cell_of_tag(tag: Tag) -> Option<usize> {
    // What is no class is not above 0.
    (tag > 0).then_some(tag as usize)
}

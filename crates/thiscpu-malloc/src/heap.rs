//! The heap: a class of objects for each size class.

use thiscpu::inside::{self, Class, Fence, Front, Group, Handle, Ready, Tag};

use crate::classes::{COUNT, cell_of_class, class_of_cell, size_of_class};

/// With one cell that is no class's.
// SAFETY: there is no other.
pub static GROUP: Group = unsafe { Group::at_front(COUNT + 1) };

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
    GROUP.handle(class_of(cell), cell)
}

/// The same, for short ways.
///
/// # Safety
///
/// Sections are ready.
#[inline(always)]
pub(crate) unsafe fn objects_ready_at(cell: usize) -> Handle<'static, Ready> {
    // SAFETY: the caller's promise.
    unsafe { GROUP.ready(class_of(cell), cell) }
}

/// The same for the shortest ones, which a thread has to be let in to.
#[inline(always)]
pub(crate) fn objects_at_front(cell: usize) -> Handle<'static, Front> {
    // SAFETY: this is the group at the front.
    unsafe { GROUP.front(class_of(cell), cell) }
}

/// Lets this thread find it there, for who has had to go another way.
pub(crate) fn come_near() {
    GROUP.come_near();
}

/// Lets calls find it at the front, or keeps them from that.
pub(crate) fn keep_from_front(is_kept: bool) {
    GROUP.keep_from_front(is_kept);
}

#[inline(always)]
fn class_of(cell: usize) -> &'static Class {
    let class = class_of_cell(cell);
    debug_assert!(class < COUNT);
    // SAFETY: there are so many.
    unsafe { CLASSES.get_unchecked(class) }
}

// By membarrier only, or lanes keep what they have: a program in a sandbox expects little more of malloc than that it maps memory.

/// Has lanes and stocks of all classes give what they keep to the slabs.
pub(crate) fn shrink() {
    GROUP.shrink::<_, COUNT>(|class| Some(objects(class)), Fence::Membarrier);
}

/// Has the stocks of some classes take what their lanes keep.
pub(crate) fn empty_lanes(are_wanted: &[bool; COUNT]) {
    let wanted = |class: usize| are_wanted[class].then(|| objects(class));
    GROUP.empty_lanes_to_stocks::<_, COUNT>(wanted, Fence::Membarrier);
}

/// How many blocks of each class are not free in their slabs. Looks at all slabs, once.
pub(crate) fn blocks_out() -> [usize; COUNT] {
    let mut out = [0; COUNT];
    for (tag, blocks) in inside::out_by_tag() {
        if let Some(cell) = cell_of_tag(tag) {
            out[class_of_cell(cell)] += blocks;
        }
    }
    out
}

/// The class of the block at an address, if it is of one.
pub(crate) fn class_at(address: usize) -> Option<usize> {
    any_cell_at(address).map(class_of_cell)
}

/// The cell of its class, whatever stands in the way of short ways.
#[inline(always)]
pub(crate) fn any_cell_at(address: usize) -> Option<usize> {
    cell_of_tag(inside::tag_of(address))
}

/// The same for short ways; none while there are extras, or sections are not ready, or where address space is scarce.
#[inline(always)]
pub(crate) fn cell_at(address: usize) -> Option<usize> {
    cell_of_tag(inside::tag_of_block(address))
}

#[inline(always)]
fn cell_of_tag(tag: Tag) -> Option<usize> {
    // What is no class is not above 0.
    (tag > 0).then_some(tag as usize)
}

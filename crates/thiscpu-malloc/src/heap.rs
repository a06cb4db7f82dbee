//! The heap: one group, with a class of objects for each size class, and one of sampled objects.

use core::ops::Range;

use thiscpu::__internal::{
    self, CELL_BYTES, Class, Countdown, DirectMalloc, Dropped, Fence, Group, Handle, LANELESS,
    Ready, SlabPages, Tag, large,
};

use crate::classes::{
    CLASS_COUNT, FIRST_LARGE, cell_of_class, class_of_cell, is_large, size_of_class,
};

/// The group of all classes. Cell 0 belongs to no class, so 0 can mean "none".
// SAFETY: this is the only group that uses malloc's direct table.
static GROUP: Group = unsafe { Group::for_malloc(CLASS_COUNT + 1) };

static CLASSES: [Class; CLASS_COUNT] = {
    let mut classes = [const { Class::new(8, 8, 1) }; CLASS_COUNT];
    let mut class = 0;
    while class < CLASS_COUNT {
        // Objects lie at multiples of their size from a multiple of 64 KiB, and all sizes but the
        // first are multiples of 16. So blocks have the alignment that C requires.
        let (size, tag) = (size_of_class(class), tag_of_class(class));
        classes[class] =
            if is_large(class) { Class::large(size, tag) } else { Class::new(size, 8, tag) };
        class += 1;
    }
    classes
};

/// Returns the tag of a class's addresses: its cell, negated if the class is large.
///
/// So the fast path to free, which takes positive tags only, leaves large blocks to
/// [`free_general`](crate::free::free_general), which checks their addresses.
const fn tag_of_class(class: usize) -> Tag {
    assert!(cell_of_class(class) <= Tag::MAX as usize);
    let cell = cell_of_class(class) as Tag;
    if is_large(class) { -cell } else { cell }
}

/// The classes of sampled blocks, which have no cells in lanes. There are no large ones.
static SAMPLED_CLASSES: [Class; FIRST_LARGE] = {
    let mut classes = [const { Class::new(8, 8, LANELESS) }; FIRST_LARGE];
    let mut class = 0;
    while class < FIRST_LARGE {
        classes[class] = Class::new(size_of_class(class), 8, LANELESS - class as Tag);
        class += 1;
    }
    classes
};

/// Returns the sampled objects of a class, which are only in slabs.
pub(crate) fn sampled_objects(class: usize) -> Handle<'static> {
    GROUP.handle(&SAMPLED_CLASSES[class], cell_of_class(class))
}

/// Returns the class of the sampled small block at an address, if one may be there.
#[inline(always)]
pub(crate) fn class_of_sampled(address: usize) -> Option<usize> {
    class_of_sampled_tag(__internal::tag_of(address))
}

fn class_of_sampled_tag(tag: Tag) -> Option<usize> {
    (tag <= LANELESS).then_some((LANELESS - tag) as usize)
}

/// Returns the objects of a class.
pub(crate) fn objects(class: usize) -> Handle<'static> {
    objects_at(cell_of_class(class))
}

/// Returns the objects of the class at `cell`.
#[inline(always)]
pub(crate) fn objects_at(cell: usize) -> Handle<'static> {
    GROUP.handle(class_at(cell), cell)
}

/// Returns the objects of the class at `cell`, for gated sections.
///
/// # Safety
///
/// Sections are ready: `fast_path` is enabled, or has been.
#[inline(always)]
pub(crate) unsafe fn gated_objects_at(cell: usize) -> Handle<'static, Ready> {
    // SAFETY: the caller guarantees that sections are ready.
    unsafe { GROUP.ready(class_at(cell), cell) }
}

/// Returns the objects of the class at `cell`, for direct sections.
#[inline(always)]
pub(crate) fn direct_objects_at(cell: usize) -> Handle<'static, DirectMalloc> {
    // SAFETY: `GROUP` is the group that uses malloc's direct table.
    unsafe { GROUP.direct_malloc(class_at(cell), cell) }
}

/// Enables direct sections for this thread and this CPU, if that is allowed.
#[inline(never)]
pub(crate) extern "C" fn enable_direct() {
    GROUP.enable_direct();
}

/// Returns the countdown of the calling thread's lane, if it has one.
#[inline]
pub(crate) fn countdown() -> Option<&'static Countdown> {
    GROUP.countdown()
}

/// Lets at most `most` allocations of each lane take the fast path.
pub(crate) fn lower_countdowns(most: u32) {
    GROUP.lower_countdowns(most);
}

/// Enables direct sections, or makes all of them miss.
pub(crate) fn set_direct_enabled(is_enabled: bool) {
    GROUP.set_direct_enabled(is_enabled);
}

#[inline(always)]
fn class_at(cell: usize) -> &'static Class {
    let class = class_of_cell(cell);
    debug_assert!(class < CLASS_COUNT);
    // SAFETY: cells come from the tables of `classes` and from slabs' tags, which are of classes.
    unsafe { CLASSES.get_unchecked(class) }
}

// Only `membarrier` may fence here; without it, lanes keep what they have. A sandbox may kill a
// program whose malloc makes other system calls than those that map memory.

/// Moves all free blocks of all classes from lanes and barns into their slabs.
pub(crate) fn shrink() {
    GROUP.shrink::<_, CLASS_COUNT>(|class| Some(objects(class)), Fence::Membarrier);
}

/// Moves all free blocks of the selected classes from lanes to barns.
pub(crate) fn flush_lanes(is_selected: &[bool; CLASS_COUNT]) {
    let selected = |class: usize| is_selected[class].then(|| objects(class));
    GROUP.flush_lanes_to_barns::<_, CLASS_COUNT>(selected, Fence::Membarrier);
}

/// Bounds what large classes hold in this CPU's lane, after a slow call of a class.
#[inline]
pub(crate) fn bound_lane(class: usize) {
    if is_large(class) {
        GROUP.bound_lane(CLASS_COUNT - FIRST_LARGE, class - FIRST_LARGE, |number| {
            objects(FIRST_LARGE + number)
        });
    }
}

/// Drops pages in which all blocks are free, of slabs that begin in some chunks.
///
/// Ends once `most` bytes were tried. The caller saves `errno`.
pub(crate) fn drop_free_pages(chunks: Range<usize>, most: usize, pages: SlabPages) -> Dropped {
    __internal::drop_free_pages(chunks, most, pages, |tag| cell_of_tag(tag).map(objects_at))
}

/// Returns, for each class, the blocks outside its slabs and those free in them.
///
/// Visits each slab once.
pub(crate) fn blocks_by_class() -> [(usize, usize); CLASS_COUNT] {
    let mut blocks = [(0, 0); CLASS_COUNT];
    for (tag, outside, free) in __internal::objects_by_tag() {
        let class = cell_of_tag(tag).map(class_of_cell).or_else(|| class_of_sampled_tag(tag));
        if let Some(class) = class {
            let class = &mut blocks[class];
            *class = (class.0 + outside, class.1 + free);
        }
    }
    blocks
}

/// Returns the bytes of all blocks outside their slabs: in use, in lanes, and in barns.
pub fn bytes_outside_slabs() -> usize {
    let blocks = blocks_by_class().into_iter().enumerate();
    blocks.map(|(class, (outside, _))| outside * size_of_class(class)).sum()
}

/// Returns the cell of the class that an address belongs to, if it belongs to one.
#[inline(always)]
pub(crate) fn cell_of(address: usize) -> Option<usize> {
    cell_of_tag(__internal::tag_of(address))
}

/// Returns the cell of the class that an address belongs to, by the lookup of the fast path.
///
/// That finds no large class and no slab with dropped pages, and no class at an address that is
/// not aligned like its blocks. It finds nothing while the fast path is blocked, or where address
/// space is scarce.
#[inline(always)]
pub(crate) fn fast_cell_of(address: usize) -> Option<usize> {
    __internal::fast_tag_of(address).map(|tag| tag as usize)
}

/// Returns whether an address is aligned like the blocks of a class that is not large.
///
/// They lie at multiples of their size from a multiple of 64 KiB, which no such size exceeds.
fn is_aligned_in(cell: usize, address: usize) -> bool {
    let size = size_of_class(class_of_cell(cell));
    address.is_multiple_of(1 << size.trailing_zeros())
}

/// Returns whether a block in use may begin at an address of the class at `cell`.
///
/// For other classes only the slab knows, so this returns true for each address aligned like one.
pub(crate) fn may_be_in_use(address: usize, cell: usize) -> bool {
    match is_large(class_of_cell(cell)) {
        true => large::is_object_in_use(address),
        false => is_aligned_in(cell, address),
    }
}

/// What [`end_use`] found at an address.
pub(crate) enum Ended {
    /// A block of the class at this cell may be freed.
    InClass(usize),
    /// Only the bits of a slab with dropped pages tell whether a block of this class begins here.
    InDroppedPages(usize),
    /// The address belongs to no class.
    NoClass,
    /// The address belongs to a class, but no block in use begins there.
    Invalid,
}

/// Finds the class of a block that is about to be freed, and ends its use if it is large.
#[inline(always)]
pub(crate) fn end_use(address: usize) -> Ended {
    let tag = __internal::tag_of(address);
    let Some(cell) = cell_of_tag(tag) else { return Ended::NoClass };
    let is_valid = match tag {
        1.. => is_aligned_in(cell, address),
        _ if is_large(class_of_cell(cell)) => large::end_object_use(address),
        _ => return Ended::InDroppedPages(cell),
    };
    if is_valid { Ended::InClass(cell) } else { Ended::Invalid }
}

#[inline(always)]
fn cell_of_tag(tag: Tag) -> Option<usize> {
    match tag {
        1.. => Some(tag as usize),
        // Those of large classes, and of slabs with dropped pages. Tags above are of memory
        // without a class, and tags below of sampled blocks.
        _ if LANELESS < tag && tag <= -(CELL_BYTES as Tag) => Some(tag.unsigned_abs() as usize),
        _ => None,
    }
}

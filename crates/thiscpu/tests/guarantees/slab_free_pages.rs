//! Slab caches: free pages of slabs in use are dropped, where nothing needs them.

use std::collections::BTreeSet;
use std::ptr::{self, NonNull};
use std::sync::Mutex;

use thiscpu::__internal::{
    CELL_BYTES, Class, Fence, Group, Handle, Lifecycle, SlabPages, drop_free_pages,
    forget_slab_changes, have_slabs_changed, memory, tag_of,
};

use crate::common::{
    CID_AND_ATOMIC, Scenario, Steps, TIERS, can_single_step, fork_at_steps, pin, scenario,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(slab::free_pages_are_dropped_only_where_marks_may_go, TIERS),
    scenario!(slab::free_pages_are_dropped_once_slab_is_idle, CID_AND_ATOMIC),
    scenario!(slab::walk_stops_and_goes_on, CID_AND_ATOMIC),
    scenario!(slab::locked_pages_are_not_dropped, CID_AND_ATOMIC),
    scenario!(slab::child_keeps_objects_when_forked_during_page_drop, CID_AND_ATOMIC)
        .needs(can_single_step)
        .not_quick(),
    scenario!(slab::child_finds_marks_when_forked_during_page_restore, CID_AND_ATOMIC)
        .needs(can_single_step)
        .not_quick(),
];

/// Bytes of an object: sixteen to a page, and one slab of them has one chunk.
const SIZE: usize = 256;
const COUNT: usize = 256;
/// A tag of no other class.
const TAG: i32 = 32;
/// The tag of caches without one of their own.
const ANY_CACHE: i32 = -2;

const CLASS_COUNT: usize = 3;
static GROUP: Group = Group::new(1 + CLASS_COUNT);
static CLASSES: [Class; CLASS_COUNT] = [
    Class::new(SIZE, 8, TAG),
    Class::new(SIZE, 8, ANY_CACHE),
    Class::constructed(SIZE - 8, 8, 2 * TAG, {
        // SAFETY: the constructor only writes the object, and the destructor does nothing.
        unsafe { Lifecycle::new(0, construct, |_, _| ()) }
    }),
];

unsafe fn construct(_: usize, object: NonNull<u8>) -> bool {
    // SAFETY: the caller has an object of that size.
    unsafe { object.write_bytes(0x77, SIZE - 8) };
    true
}

fn class(number: usize) -> Handle<'static> {
    GROUP.handle(&CLASSES[number], (1 + number) * CELL_BYTES)
}

/// Allocates an object; returns its address.
fn alloc(number: usize) -> usize {
    let class = class(number);
    let object = match number {
        2 => class.alloc_constructed_or(|| class.alloc_constructed_slow()),
        _ => class.alloc_or(|| class.alloc_slow()),
    };
    object.expect("memory").as_ptr().expose_provenance()
}

fn pointer(object: usize) -> NonNull<u8> {
    NonNull::new(ptr::with_exposed_provenance_mut(object)).expect("an object")
}

fn free(number: usize, object: usize) {
    let (class, object) = (class(number), pointer(object));
    // SAFETY: the object is of this class, and not used any more.
    unsafe {
        match number {
            2 => class.free_constructed_or(object, || class.free_constructed_slow(object)),
            _ => class.free_or(object, || class.free_slow(object)),
        }
    }
}

/// Allocates objects, and frees all but those from `kept` on into their slabs.
fn alloc_sparse(number: usize, kept: usize) -> (Vec<usize>, Vec<usize>) {
    let mut objects: Vec<_> = (0..COUNT).map(|_| alloc(number)).collect();
    objects.sort_unstable();
    let kept = objects.split_off(kept);
    for &object in &objects {
        // SAFETY: the object is allocated with that many bytes.
        unsafe { pointer(object).write_bytes(0x77, SIZE - 8) };
        free(number, object);
    }
    shrink();
    (kept, objects)
}

fn shrink() {
    GROUP.shrink::<_, CLASS_COUNT>(|number| Some(class(number)), Fence::Any);
}

/// Drops free pages; returns how many bytes, and whether more slabs may have some later.
fn drop_pages(pages: SlabPages) -> (usize, bool) {
    let class_of = |tag: i32| match tag.abs() {
        TAG => Some(class(0)),
        tag if tag == 2 * TAG => Some(class(2)),
        _ => Some(class(1)),
    };
    let done = drop_free_pages(0..usize::MAX, usize::MAX, pages, class_of);
    assert_eq!(done.next, None, "the walk is not at the end");
    (done.bytes, done.is_more_later)
}

fn drop_all() -> usize {
    drop_pages(SlabPages::All).0
}

// Objects of caches keep their marks, because their frees do not look at the tag.
fn free_pages_are_dropped_only_where_marks_may_go() {
    pin::pin(0);
    for number in 0..CLASS_COUNT {
        let (kept, freed) = alloc_sparse(number, COUNT - 20);
        let bytes = drop_all();
        let is_dropped = number == 0;
        assert_eq!(bytes > 0, is_dropped, "{bytes} bytes of class {number} were dropped");
        // SAFETY: slabs stay mapped, and this process has no other thread.
        let is_zero = |&object: &usize| unsafe { pointer(object + 16).read() } == 0;
        assert_eq!(freed.iter().any(is_zero), is_dropped, "class {number}");
        assert_eq!(drop_all(), 0, "pages were dropped twice");
        let again: Vec<_> = freed.iter().map(|_| alloc(number)).collect();
        again.into_iter().chain(kept).for_each(|object| free(number, object));
        shrink();
    }
}

fn free_pages_are_dropped_once_slab_is_idle() {
    pin::pin(0);
    forget_slab_changes();
    let (mut kept, _) = alloc_sparse(0, COUNT - 20);
    assert!(have_slabs_changed());
    for _ in 0..3 {
        assert_eq!(drop_pages(SlabPages::Idle), (0, true), "the slabs have just changed");
        // One object of each slab, which has one chunk.
        for chunk in kept.iter().map(|object| object >> 16).collect::<BTreeSet<_>>() {
            let last = kept.iter().rposition(|object| object >> 16 == chunk);
            free(0, kept.swap_remove(last.expect("an object of the slab")));
        }
        shrink();
    }
    assert_eq!(drop_pages(SlabPages::Idle), (0, true), "the slabs have just changed");
    let (bytes, is_more_later) = drop_pages(SlabPages::Idle);
    assert!(bytes > 0 && !is_more_later, "{bytes} bytes of an idle slab, {is_more_later}");
    assert_eq!(drop_pages(SlabPages::Idle), (0, false));
    kept.into_iter().for_each(|object| free(0, object));
    shrink();
}

fn locked_pages_are_not_dropped() {
    pin::pin(0);
    let (kept, freed) = alloc_sparse(0, COUNT - 20);
    let (begin, bytes) = (pointer(freed[0]).as_ptr().cast(), SIZE * COUNT);
    // SAFETY: the objects fill one slab, and the lock changes no content.
    if unsafe { libc::mlock(begin, bytes) } != 0 {
        return eprintln!("skipped: no memory may be locked");
    }
    let before = memory();
    assert_eq!(drop_all(), 0, "locked pages count as dropped");
    assert_eq!(memory(), before, "locked pages do not count");
    assert_eq!(tag_of(freed[0]), TAG, "the fast path does not free there");
    // SAFETY: the slab stays mapped, and unlocking changes no content.
    unsafe { libc::munlock(begin, bytes) };
    let again: Vec<_> = freed.iter().map(|_| alloc(0)).collect();
    again.into_iter().chain(kept).for_each(|object| free(0, object));
    shrink();
}

fn walk_stops_and_goes_on() {
    pin::pin(0);
    let mut objects: Vec<_> = (0..4 * COUNT).map(|_| alloc(0)).collect();
    objects.sort_unstable();
    let (kept, freed): (Vec<_>, Vec<_>) =
        objects.into_iter().enumerate().partition(|(number, _)| number % 64 == 0);
    freed.into_iter().for_each(|(_, object)| free(0, object));
    shrink();
    let (mut from, mut dropped) = (0, Vec::new());
    loop {
        let done = drop_free_pages(from..usize::MAX, 1, SlabPages::All, |_| Some(class(0)));
        if done.bytes > 0 {
            dropped.push(done.bytes);
        }
        let Some(next) = done.next else { break };
        assert!(next > from);
        from = next;
    }
    assert!(
        dropped.len() >= 3,
        "of at least three slabs, walks that end at the first saw {dropped:?}"
    );
    assert_eq!(drop_all(), 0, "the walks left pages out");
    kept.into_iter().for_each(|(_, object)| free(0, object));
    shrink();
}

// The child finds the slab with any part of its tags, bits and pages changed.
fn child_keeps_objects_when_forked_during_page_drop() {
    pin::pin(0);
    let current = Mutex::new((Vec::new(), Vec::new()));
    let prepare = || *current.lock().expect("no panic") = alloc_sparse(0, COUNT - 20);
    let child = || {
        let (kept, freed) = &*current.lock().expect("no panic");
        // All objects that were free are found, each once, and before those of a third slab.
        let again: BTreeSet<_> = (0..2 * COUNT).map(|_| alloc(0)).collect();
        assert_eq!(again.len(), 2 * COUNT, "an object was handed out twice");
        assert!(kept.iter().all(|object| !again.contains(object)));
        assert!(freed.iter().all(|object| again.contains(object)), "objects were lost");
        again.iter().chain(kept).for_each(|&object| free(0, object));
        shrink();
        assert_eq!(CLASSES[0].stats().slabs, 0);
    };
    let check = |bytes| {
        assert!(bytes > 0);
        let (kept, _) = std::mem::take(&mut *current.lock().expect("no panic"));
        kept.into_iter().for_each(|object| free(0, object));
        shrink();
    };
    fork_at_steps(Steps::Sampled, prepare, drop_all, child, check);
}

// The child finds some objects of the page marked, or all, and the page still dropped, or not.
fn child_finds_marks_when_forked_during_page_restore() {
    pin::pin(0);
    let current = Mutex::new(Vec::new());
    let prepare = || {
        *current.lock().expect("no panic") = alloc_sparse(0, COUNT - 20).0;
        assert!(drop_all() > 0);
    };
    let child = || {
        let kept = &*current.lock().expect("no panic");
        // A call aborts if it finds an object without a mark whose page is not dropped.
        let again: BTreeSet<_> = (0..2 * COUNT).map(|_| alloc(0)).collect();
        assert_eq!(again.len(), 2 * COUNT, "an object was handed out twice");
        assert!(kept.iter().all(|object| !again.contains(object)));
        again.iter().chain(kept).for_each(|&object| free(0, object));
        shrink();
    };
    let check = |object| {
        free(0, object);
        let kept = std::mem::take(&mut *current.lock().expect("no panic"));
        kept.into_iter().for_each(|object| free(0, object));
        shrink();
    };
    fork_at_steps(Steps::Sampled, prepare, || alloc(0), child, check);
}

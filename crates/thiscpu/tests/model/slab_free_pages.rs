//! Free pages of slabs in use are dropped while other threads allocate and free there.
//!
//! Modeled pages keep their contents. So this is about tags, bits and locks, and about the question
//! that a call asks without the lock before it frees.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ptr::NonNull;

use thiscpu::__internal::{
    CELL_BYTES, Class, Fence, Group, Handle, SlabPages, drop_free_pages, is_outside_slab, tag_of,
};
use thiscpu::model;

use crate::run::{leave_lanes_if, on_threads};
use crate::slab::on_each_machine;

/// Eight objects to a slab, which has two pages.
const SIZE: usize = 1024;
const TAG: i32 = 3;

thread_local! {
    // The model runs all threads of an execution on one OS thread.
    /// The addresses of objects in use.
    static IN_USE: RefCell<BTreeSet<usize>> = RefCell::default();
    /// Bytes dropped in all executions.
    static DROPPED: RefCell<usize> = RefCell::default();
}

/// A class of one execution.
struct Objects {
    group: Group,
    class: Class,
}

impl Objects {
    fn new() -> &'static Objects {
        IN_USE.take();
        // Leaked, because no other group may have this address in the same execution.
        Box::leak(Box::new(Objects { group: Group::new(2), class: Class::new(SIZE, 8, TAG) }))
    }

    fn handle(&'static self) -> Handle<'static> {
        self.group.handle(&self.class, CELL_BYTES)
    }

    /// Allocates an object, if there is memory.
    fn alloc(&'static self) {
        let objects = self.handle();
        let Some(object) = objects.alloc_or(|| objects.alloc_slow()) else { return };
        let is_new = IN_USE.with_borrow_mut(|in_use| in_use.insert(object.addr().get()));
        assert!(is_new, "{object:?} is allocated twice");
    }

    /// Frees a random object, if any is in use, as a program does whose frees find the class.
    fn free(&'static self) {
        let number = model::choose(IN_USE.with_borrow(BTreeSet::len).max(1));
        let taken = IN_USE.with_borrow_mut(|in_use| {
            let address = in_use.iter().nth(number).copied()?;
            in_use.take(&address)
        });
        let Some(address) = taken else { return };
        match tag_of(address) {
            TAG => {}
            tag => assert!(tag == -TAG && is_outside_slab(address), "{address:#x} is in use"),
        }
        let objects = self.handle();
        let object = NonNull::new(std::ptr::with_exposed_provenance_mut(address));
        let object = object.expect("an object");
        // SAFETY: the object was in the oracle, so it is allocated from this class; it has just
        // been removed, so no other thread frees it.
        unsafe { objects.free_or(object, || objects.free_slow(object)) };
    }

    fn shrink(&'static self) {
        self.group.shrink::<_, 1>(|_| Some(self.handle()), Fence::Any);
    }

    fn drop_pages(&'static self) {
        let pages = [SlabPages::All, SlabPages::Idle][model::choose(2)];
        let done = drop_free_pages(0..usize::MAX, usize::MAX, pages, |_| Some(self.handle()));
        DROPPED.with_borrow_mut(|dropped| *dropped += done.bytes);
    }

    fn random_ops(&'static self) {
        for _ in 0..4 + model::choose(10) {
            match model::choose(20) {
                0..=8 => self.alloc(),
                9..=15 => self.free(),
                16..=17 => self.shrink(),
                _ => self.drop_pages(),
            }
        }
    }
}

#[test]
fn objects_stay_distinct_while_free_pages_are_dropped() {
    on_each_machine(2_000, |cpus| {
        let objects = Objects::new();
        on_threads(4, cpus, move |thread| {
            leave_lanes_if(thread == 3);
            objects.random_ops();
        });
        while IN_USE.with_borrow(|in_use| !in_use.is_empty()) {
            objects.free();
        }
        objects.shrink();
        let stats = objects.class.stats();
        assert_eq!((stats.slabs, stats.objects_outside_slabs), (0, 0));
    });
    assert!(DROPPED.take() > 0, "no page was dropped");
}

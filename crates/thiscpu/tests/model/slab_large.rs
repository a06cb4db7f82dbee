//! Classes of large objects, whose lanes and barns have limits in common.
//!
//! Each slow call bounds what its lane holds, as malloc's do. So threads take sheaves of a class
//! out of a lane that other threads on that CPU trade, shrink, and use.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ptr::NonNull;

use thiscpu::__internal::{CELL_BYTES, Class, Fence, Group, Handle, large};
use thiscpu::model;

use crate::run::{leave_lanes_if, on_threads};
use crate::slab::on_each_machine;

/// Objects of a slab each. Two sheaves of both classes are more than a lane may hold.
const SIZES: [usize; 2] = [16 * 1024, 24 * 1024];

/// Two classes of one execution.
struct Classes {
    group: Group,
    classes: [Class; 2],
}

thread_local! {
    // The model runs all threads of an execution on one OS thread.
    /// The class of each object in use, by its address.
    static IN_USE: RefCell<BTreeMap<usize, usize>> = RefCell::default();
}

impl Classes {
    fn new() -> &'static Classes {
        IN_USE.take();
        let classes = [Class::large(SIZES[0], -3), Class::large(SIZES[1], -4)];
        // Leaked, because no other group may have this address in the same execution.
        Box::leak(Box::new(Classes { group: Group::new(3), classes }))
    }

    fn handle(&'static self, class: usize) -> Handle<'static> {
        self.group.handle(&self.classes[class], (class + 1) * CELL_BYTES)
    }

    fn bound_lane(&'static self, class: usize) {
        self.group.bound_lane(SIZES.len(), class, |class| self.handle(class));
    }

    /// Allocates an object, if there is memory.
    fn alloc(&'static self, class: usize) {
        let objects = self.handle(class);
        let slow = || {
            let object = objects.alloc_slow();
            self.bound_lane(class);
            object
        };
        let Some(object) = objects.alloc_or(slow) else { return };
        objects.begin_use(object);
        let taken = IN_USE.with_borrow_mut(|in_use| in_use.insert(object.addr().get(), class));
        assert_eq!(taken, None, "{object:?} is allocated twice");
    }

    /// Frees a random object, if any is in use.
    fn free(&'static self) {
        let number = model::choose(IN_USE.with_borrow(BTreeMap::len).max(1));
        let taken = IN_USE.with_borrow_mut(|in_use| {
            let address = *in_use.keys().nth(number)?;
            in_use.remove_entry(&address)
        });
        let Some((address, class)) = taken else { return };
        assert!(large::end_object_use(address), "{address:#x} is not known to be in use");
        assert!(!large::is_object_in_use(address));
        let objects = self.handle(class);
        let object = NonNull::new(std::ptr::with_exposed_provenance_mut(address));
        let object = object.expect("an object");
        // SAFETY: the object was in the oracle, so it is allocated from this class; it has just
        // been removed, so no other thread frees it.
        unsafe {
            objects.free_or(object, || {
                objects.free_slow(object);
                self.bound_lane(class);
            });
        }
    }

    fn shrink(&'static self) {
        self.group.shrink::<_, 2>(|class| Some(self.handle(class)), Fence::Any);
    }

    fn random_ops(&'static self) {
        for _ in 0..4 + model::choose(10) {
            match model::choose(20) {
                0..=9 => self.alloc(model::choose(SIZES.len())),
                10..=18 => self.free(),
                _ => self.shrink(),
            }
        }
    }
}

#[test]
fn classes_with_one_limit_lose_nothing() {
    on_each_machine(4_000, |cpus| {
        let classes = Classes::new();
        on_threads(4, cpus, move |thread| {
            leave_lanes_if(thread == 3);
            classes.random_ops();
        });
        while IN_USE.with_borrow(|in_use| !in_use.is_empty()) {
            classes.free();
        }
        classes.shrink();
        for class in &classes.classes {
            let stats = class.stats();
            assert_eq!((stats.slabs, stats.objects_outside_slabs), (0, 0));
        }
    });
}

//! Slab caches whose objects stay constructed.
//!
//! Each object is constructed exactly once before its first allocation, and destroyed before its
//! memory is used for anything else.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ptr::NonNull;

use thiscpu::__internal::{CELL_BYTES, Class, Group, Handle, Lifecycle};
use thiscpu::Tier;
use thiscpu::model::{self, Machine};

use crate::run::{in_every_order_on, leave_lanes_if, on_threads};
use crate::slab::on_each_machine;

/// Four objects to a slab, with their free marks.
const SIZE: usize = 16 * 1024 - 8;

/// The addresses of this execution's objects.
#[derive(Default)]
struct Oracle {
    constructed: BTreeSet<usize>,
    in_use: BTreeSet<usize>,
}

thread_local! {
    // The model runs all threads of an execution on one OS thread.
    static ORACLE: RefCell<Oracle> = RefCell::default();
}

fn address(object: NonNull<u8>) -> usize {
    object.as_ptr() as usize
}

/// Constructs an object, or fails in one of `failures` cases: never if that is 0.
unsafe fn construct(failures: usize, object: NonNull<u8>) -> bool {
    if failures > 0 && model::choose(failures) == 0 {
        return false;
    }
    ORACLE.with_borrow_mut(|oracle| {
        assert!(oracle.constructed.insert(address(object)), "{object:?} is constructed twice");
    });
    true
}

unsafe fn destroy(_: usize, object: NonNull<u8>) {
    ORACLE.with_borrow_mut(|oracle| {
        assert!(!oracle.in_use.contains(&address(object)), "{object:?} is destroyed in use");
        assert!(oracle.constructed.remove(&address(object)), "{object:?} is destroyed twice");
    });
}

fn alloc(cache: Handle<'static>) {
    let object = cache.alloc_constructed_or(|| cache.alloc_constructed_slow());
    let Some(object) = object else { return };
    ORACLE.with_borrow_mut(|oracle| {
        assert!(oracle.constructed.contains(&address(object)), "{object:?} is not constructed");
        assert!(oracle.in_use.insert(address(object)), "{object:?} is allocated twice");
    });
}

/// Frees a random object, if any is in use.
fn free(cache: Handle<'static>) {
    let number = model::choose(ORACLE.with_borrow(|oracle| oracle.in_use.len()).max(1));
    let take = |oracle: &mut Oracle| {
        let object = oracle.in_use.iter().copied().nth(number)?;
        oracle.in_use.remove(&object);
        NonNull::new(std::ptr::with_exposed_provenance_mut(object))
    };
    if let Some(object) = ORACLE.with_borrow_mut(take) {
        // SAFETY: the object was in the oracle, so it is allocated from this cache; it has just
        // been removed, so no other thread frees it.
        unsafe { cache.free_constructed_or(object, || cache.free_constructed_slow(object)) };
    }
}

fn random_ops(cache: Handle<'static>) {
    for _ in 0..3 + model::choose(8) {
        match model::choose(20) {
            0..=8 => alloc(cache),
            9..=17 => free(cache),
            _ => cache.shrink(),
        }
    }
}

#[test]
fn objects_are_constructed_and_destroyed_once() {
    on_each_machine(4_000, |cpus| {
        ORACLE.set(Oracle::default());
        // SAFETY: `construct` and `destroy` do not access the object's memory.
        let lifecycle = unsafe { Lifecycle::new(6, construct, destroy) };
        let group: &Group = Box::leak(Box::new(Group::new(2)));
        let class: &Class = Box::leak(Box::new(Class::constructed(SIZE, 8, 1, lifecycle)));
        let cache = group.handle(class, CELL_BYTES);
        on_threads(4, cpus, move |thread| {
            leave_lanes_if(thread == 3);
            random_ops(cache);
        });
        while ORACLE.with_borrow(|oracle| !oracle.in_use.is_empty()) {
            free(cache);
        }
        cache.shrink();
        ORACLE.with_borrow(|oracle| assert!(oracle.constructed.is_empty(), "some are left"));
        let stats = class.stats();
        assert_eq!((stats.slabs, stats.objects_outside_slabs), (0, 0));
    });
}

/// One object to a slab.
const ALONE: usize = 64 * 1024 - 8;

// Two threads each free the last object of a slab and shrink: one of them destroys both objects.
#[test]
fn two_slabs_may_retire_at_once() {
    static GROUP: Group = Group::new(1);
    // SAFETY: `construct` and `destroy` do not access the object's memory.
    static CLASS: Class =
        Class::constructed(ALONE, 8, 1, unsafe { Lifecycle::new(0, construct, destroy) });
    let retire = |cache: Handle<'static>, object: usize| {
        let object = NonNull::new(std::ptr::with_exposed_provenance_mut(object));
        // SAFETY: the object is allocated from this cache, and the oracle no longer has it, so no
        // other thread frees it.
        unsafe { cache.free_to_slab(object.expect("an object")) };
        cache.shrink();
    };
    in_every_order_on([Machine::new(2, Tier::Atomic)], 1, move || {
        ORACLE.set(Oracle::default());
        let cache = GROUP.handle(&CLASS, 0);
        (0..2).for_each(|_| alloc(cache));
        let objects = ORACLE.with_borrow_mut(|oracle| std::mem::take(&mut oracle.in_use));
        let [mine, theirs] = Vec::from_iter(objects).try_into().expect("two objects");
        let other = model::spawn(1, move || retire(cache, theirs));
        retire(cache, mine);
        other.join();
        ORACLE.with_borrow(|oracle| assert!(oracle.constructed.is_empty(), "one is not destroyed"));
    });
}

//! Slab caches whose objects stay constructed: each is constructed before it is handed out, and once, and destroyed before
//! its memory is used for anything else.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ptr::NonNull;

use thiscpu::Tier;
use thiscpu::inside::{CELL_BYTES, Class, Group, Handle, Life};
use thiscpu::model::{self, Machine, exhaustive};

use crate::slab::on_each_machine;

/// Four objects a slab, with their marks.
const SIZE: usize = 16 * 1024 - 8;

/// The addresses of this execution's objects.
#[derive(Default)]
struct Book {
    constructed: BTreeSet<usize>,
    out: BTreeSet<usize>,
}

thread_local! {
    // All threads of an execution run on one thread of the system.
    static BOOK: RefCell<Book> = RefCell::default();
}

fn address(object: NonNull<u8>) -> usize {
    object.as_ptr() as usize
}

unsafe fn construct(_: usize, object: NonNull<u8>) {
    BOOK.with_borrow_mut(|book| {
        assert!(book.constructed.insert(address(object)), "{object:?} is constructed twice");
    });
}

unsafe fn destroy(object: NonNull<u8>) {
    BOOK.with_borrow_mut(|book| {
        assert!(!book.out.contains(&address(object)), "{object:?} is destroyed while it is out");
        assert!(book.constructed.remove(&address(object)), "{object:?} is destroyed twice");
    });
}

fn alloc(cache: Handle<'static>) {
    let object = cache.alloc_constructed_or(|| cache.alloc_constructed_slowly());
    let Some(object) = object else { return };
    BOOK.with_borrow_mut(|book| {
        assert!(book.constructed.contains(&address(object)), "{object:?} is not constructed");
        assert!(book.out.insert(address(object)), "{object:?} is handed out, and is out already");
    });
}

/// Frees any of the objects that are out, whoever has got it.
fn free(cache: Handle<'static>) {
    let number = model::choose(BOOK.with_borrow(|book| book.out.len()).max(1));
    let take = |book: &mut Book| {
        let object = book.out.iter().copied().nth(number)?;
        book.out.remove(&object);
        NonNull::new(std::ptr::with_exposed_provenance_mut(object))
    };
    if let Some(object) = BOOK.with_borrow_mut(take) {
        // SAFETY: it is out, and the book knows it no more.
        unsafe { cache.free_constructed_or(object, || cache.free_constructed_slowly(object)) };
    }
}

fn anything(cache: Handle<'static>) {
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
        BOOK.set(Book::default());
        // SAFETY: they access nothing.
        let life = unsafe { Life::new(0, construct, destroy) };
        let group: &Group = Box::leak(Box::new(Group::new(2)));
        let class: &Class = Box::leak(Box::new(Class::constructed(SIZE, 8, 1, life)));
        let cache = group.handle(class, CELL_BYTES);
        let threads = [0, 1, 2, 3].map(|number| {
            model::spawn(number % cpus, move || {
                if number == 3 {
                    model::leave_lanes();
                }
                anything(cache);
            })
        });
        threads.into_iter().for_each(model::Thread::join);
        while BOOK.with_borrow(|book| !book.out.is_empty()) {
            free(cache);
        }
        cache.shrink();
        BOOK.with_borrow(|book| assert!(book.constructed.is_empty(), "not all are destroyed"));
        let stats = class.stats();
        assert_eq!((stats.slabs, stats.objects_outside_slabs), (0, 0));
    });
}

/// One object a slab.
const ALONE: usize = 64 * 1024 - 8;

/// Two who shrink at once, each after the last object of a slab came back: one of them destroys both.
#[test]
fn two_slabs_may_retire_at_once() {
    static GROUP: Group = Group::new(1);
    // SAFETY: they access nothing.
    static CLASS: Class =
        Class::constructed(ALONE, 8, 1, unsafe { Life::new(0, construct, destroy) });
    let retire = |cache: Handle<'static>, object: usize| {
        let object = NonNull::new(std::ptr::with_exposed_provenance_mut(object));
        // SAFETY: it is out, and the book knows it no more.
        unsafe { cache.free_to_slab(object.expect("an object")) };
        cache.shrink();
    };
    let orders = exhaustive(Machine::new(2, Tier::Atomic), 1, move || {
        BOOK.set(Book::default());
        let cache = GROUP.handle(&CLASS, 0);
        (0..2).for_each(|_| alloc(cache));
        let mut out = BOOK.with_borrow_mut(|book| std::mem::take(&mut book.out)).into_iter();
        let (mine, theirs) = (out.next().expect("two"), out.next().expect("two"));
        let other = model::spawn(1, move || retire(cache, theirs));
        retire(cache, mine);
        other.join();
        BOOK.with_borrow(|book| assert!(book.constructed.is_empty(), "one is left"));
    });
    println!("{orders} orders");
}

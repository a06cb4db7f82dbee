//! Slab caches: an object taken from a lane, one put back, and the trades of whole sheaves.
//!
//! Which object comes is the cache's business. So the books say which objects are out, and what each holds: no call may
//! hand out one of those, and in the end as many must be out as the books know of.

use std::alloc::Layout;
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::ptr::NonNull;

use thiscpu::__internal::{CELL_BYTES, Class, DirectMalloc, Group, HAS_DIRECT, Handle, Ready, Tag};
use thiscpu::{CacheStats, RawCache};

#[cfg(target_arch = "x86_64")]
use super::assembly;
use crate::drive::Case;
use crate::ops;
use crate::subject::{Conflict, Subject, Wrong, expect};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = in_assembly();
    cases.extend([
        Case::of::<Call<Take>>("RawCache", "alloc"),
        Case::of::<Call<TakeHot>>("RawCache", "alloc in a lane with a hot object"),
        Case::of::<Call<Give>>("RawCache", "free in a lane with a hot object"),
        Case::of::<Call<GiveHot>>("RawCache", "free"),
        Case::of::<Call<TakeFarther>>("RawCache of a thread that is not let in", "alloc"),
        Case::of::<Call<TakeHotFarther>>(
            "RawCache of a thread that is not let in",
            "alloc in a lane with a hot object",
        ),
        Case::of::<Call<GiveFarther>>(
            "RawCache of a thread that is not let in",
            "free in a lane with a hot object",
        ),
        Case::of::<Call<GiveHotFarther>>("RawCache of a thread that is not let in", "free"),
        Case::of::<Call<TakeOfNone>>("RawCache", "alloc in a lane with an empty sheaf"),
        Case::of::<Call<TakeOfSpare>>("RawCache", "alloc in a lane whose other sheaf is full"),
        Case::of::<Call<TakeOfEmpty>>("RawCache", "alloc in a lane with two empty sheaves"),
        Case::of::<Call<GiveToNone>>("RawCache", "free in a lane without sheaves"),
        Case::of::<Call<GiveToSpare>>("RawCache", "free in a lane whose other sheaf is empty"),
        Case::of::<Call<GiveToFull>>("RawCache", "free in a lane with two full sheaves"),
        Case::of::<Call<TakeOfClass>>("a class", "alloc"),
        Case::of::<Call<GiveToClass>>("a class", "free"),
        Case::of::<Call<TakeOfReady>>("a class whose sections are ready", "alloc"),
        Case::of::<Call<GiveToReady>>("a class whose sections are ready", "free"),
        Case::of::<Call<TakeOfFront>>("a class at the front", "alloc"),
        Case::of::<Call<GiveToFront>>("a class at the front", "free"),
    ]);
    cases
}

#[cfg(target_arch = "x86_64")]
fn in_assembly() -> Vec<Case> {
    vec![
        Case::of::<Call<TakeInAssembly>>("a class at the front, in assembly", "alloc"),
        Case::of::<Call<GiveInAssembly>>("a class at the front, in assembly", "free"),
    ]
}

/// There are no such functions.
#[cfg(not(target_arch = "x86_64"))]
fn in_assembly() -> Vec<Case> {
    Vec::new()
}

const CONFLICTS: &[Conflict] =
    &[Conflict::SameLane, Conflict::Move, Conflict::Leave, Conflict::Close, Conflict::Always];

/// Large enough that a sheaf has the fewest entries there are.
pub(super) const OBJECT: Layout = Layout::new::<[usize; WORDS]>();
const WORDS: usize = 128;
/// The entries of such a sheaf.
const SHEAF: usize = 4;
/// More than lanes and stocks hold here.
const MANY: usize = 12 * SHEAF;

/// What the shortest ways are where there are any, and what they come to elsewhere.
const NEAR: [&str; 2] = if HAS_DIRECT {
    ["pop_object_direct", "push_object_direct"]
} else {
    ["pop_object_single", "push_object_single"]
};
const FRONT: [&str; 2] = if HAS_DIRECT {
    ["pop_object_malloc", "push_object_malloc"]
} else {
    ["pop_object", "push_object"]
};

/// A call on a cache.
type Run = fn(&Store) -> Result<(), Wrong>;

/// What objects come from.
enum Source {
    Cache(RawCache),
    /// A class, as malloc has them. There is one, which is used again when all has come back.
    Class,
    /// The same, with sections that look for less.
    ReadyClass,
    /// The same, with sections that look in no gate.
    FrontClass,
    /// The same by functions in assembly.
    #[cfg(target_arch = "x86_64")]
    Assembly,
    /// A cache, whose near sections are kept out.
    FarCache(RawCache),
}

// SAFETY: there is no other; this program does not use malloc's.
pub(super) static GROUP: Group = unsafe { Group::for_malloc(2) };
/// Not the first, so that it can be the tag.
pub(super) const CELL: usize = CELL_BYTES;
static CLASS: Class = Class::new(OBJECT.size(), OBJECT.align(), CELL as Tag);

pub(super) fn class() -> Handle<'static> {
    GROUP.handle(&CLASS, CELL)
}

/// As who has gone another way before.
pub(super) fn enable_direct() {
    GROUP.enable_direct();
}

fn ready_class() -> Handle<'static, Ready> {
    assert!(thiscpu::__internal::sections_are_ready(), "there are sections");
    // SAFETY: just looked at.
    unsafe { GROUP.ready(&CLASS, CELL) }
}

fn front_class() -> Handle<'static, DirectMalloc> {
    enable_direct();
    // SAFETY: there is no other group at the front.
    unsafe { GROUP.direct_malloc(&CLASS, CELL) }
}

impl Source {
    fn alloc(&self) -> Option<NonNull<u8>> {
        match self {
            Source::Cache(cache) => ops::alloc(cache),
            Source::Class => ops::alloc_of(class(), class()),
            Source::ReadyClass => ops::alloc_of(ready_class(), class()),
            Source::FrontClass => ops::alloc_of(front_class(), class()),
            #[cfg(target_arch = "x86_64")]
            Source::Assembly => assembly::alloc(),
            Source::FarCache(cache) => {
                thiscpu::__test_support::disable_direct();
                ops::alloc(cache)
            }
        }
    }

    /// # Safety
    ///
    /// The object is from there, and nobody uses it.
    unsafe fn free(&self, object: NonNull<u8>) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Source::Cache(cache) => ops::free(cache, object),
                Source::Class => ops::free_of(class(), class(), object),
                Source::ReadyClass => ops::free_of(ready_class(), class(), object),
                Source::FrontClass => ops::free_of(front_class(), class(), object),
                #[cfg(target_arch = "x86_64")]
                Source::Assembly => assembly::free(object),
                Source::FarCache(cache) => {
                    thiscpu::__test_support::disable_direct();
                    ops::free(cache, object);
                }
            }
        }
    }

    fn shrink(&self) {
        match self {
            Source::Cache(cache) | Source::FarCache(cache) => drop(cache.shrink()),
            _ => class().shrink(),
        }
    }

    fn stats(&self) -> CacheStats {
        match self {
            Source::Cache(cache) | Source::FarCache(cache) => cache.stats(),
            _ => CLASS.stats(),
        }
    }
}

/// A source, and its objects that are out.
struct Store {
    source: Source,
    /// Each with the number that all of its words hold.
    out: RefCell<Vec<(NonNull<u8>, usize)>>,
    last: Cell<usize>,
}

fn words(object: NonNull<u8>) -> *mut [usize; WORDS] {
    object.cast().as_ptr()
}

impl Store {
    fn new(source: Source) -> Store {
        Store { source, out: RefCell::default(), last: Cell::new(0) }
    }

    fn alloc(&self) -> Result<(), Wrong> {
        let object = self.source.alloc().ok_or("there is no memory")?;
        let mut out = self.out.borrow_mut();
        if out.iter().any(|&(other, _)| other == object) {
            return Err(format!("{object:?} is handed out, and is out already"));
        }
        // SAFETY: it is of this layout, and in nobody else's hands.
        expect("the first word of a new object", &unsafe { (*words(object))[0] }, &0)?;
        let number = self.last.get() + 1;
        self.last.set(number);
        // SAFETY: as above.
        unsafe { words(object).write([number; WORDS]) };
        out.push((object, number));
        Ok(())
    }

    /// Frees the object that is out for the longest time.
    fn free(&self) -> Result<(), Wrong> {
        let (object, number) = self.out.borrow_mut().remove(0);
        // SAFETY: it is out, and was written to when it was handed out.
        let held = unsafe { words(object).read() };
        expect("the words of an object", &held, &[number; WORDS])?;
        // SAFETY: it is out, and the books know it no more.
        unsafe { self.source.free(object) };
        Ok(())
    }

    /// So many calls of each, alternately.
    fn calls(&self, counts: &[usize]) {
        let calls: [Run; 2] = [Store::alloc, Store::free];
        for (&count, call) in counts.iter().zip(calls.iter().cycle()) {
            (0..count).for_each(|_| call(self).expect("nothing conflicts yet"));
        }
    }

    fn shrink(&self) -> Result<(), Wrong> {
        self.source.shrink();
        let there = self.source.stats().objects_outside_slabs;
        expect("the objects that are out", &there, &self.out.borrow().len())
    }

    /// Gets all that is free anywhere, gives all back, and closes the cache.
    fn check(&mut self) -> Result<(), Wrong> {
        (0..MANY).try_for_each(|_| self.alloc())?;
        self.shrink()?;
        while !self.out.borrow().is_empty() {
            self.free()?;
        }
        self.shrink()?;
        match std::mem::replace(&mut self.source, Source::Class) {
            Source::Cache(cache) | Source::FarCache(cache) => {
                cache.close().map_err(|error| error.to_string())
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // SAFETY: they are out, and nobody knows them any more.
        self.out.get_mut().drain(..).for_each(|(object, _)| unsafe { self.source.free(object) });
    }
}

/// A call, in a lane that is as it is wanted.
trait Op {
    const SECTION: &'static str;
    /// What the lane is made so by: so many allocations, then so many frees, and so on.
    const BEFORE: &'static [usize];
    /// Whether all is taken out of the lane then, and one more object is freed to it.
    const SHRINKS: bool = false;
    const SOURCE: fn() -> Source;
    const RUN: Run;
}

macro_rules! ops {
    ($source:expr; $($name:ident: $run:ident, $section:expr, $before:expr $(, $shrinks:literal)?;)*) => {$(
        enum $name {}

        impl Op for $name {
            const SECTION: &'static str = $section;
            const BEFORE: &'static [usize] = $before;
            $(const SHRINKS: bool = $shrinks;)?
            const SOURCE: fn() -> Source = || $source;
            const RUN: Run = Store::$run;
        }
    )*};
}

// The first of some frees only makes an object hot, and the first allocation after those takes it.
ops! {
    Source::Cache(RawCache::new(OBJECT));
    Take: alloc, NEAR[0], &[1];
    TakeHot: alloc, NEAR[0], &[1, 1];
    Give: free, NEAR[1], &[3, 1];
    GiveHot: free, NEAR[1], &[2];
    // The first sheaf is used up.
    TakeOfNone: alloc, "cmpxchg_cell", &[SHEAF];
    // The second one is filled and becomes the other one; the first, which comes back, is used up.
    TakeOfSpare: alloc, "cmpxchg_cell", &[SHEAF + 1, 3, 2];
    TakeOfEmpty: alloc, "cmpxchg_cell", &[2 * SHEAF];
    GiveToNone: free, "cmpxchg_cell", &[3], true;
    // The second sheaf is filled up again; the first is empty.
    GiveToSpare: free, "cmpxchg_cell", &[SHEAF + 1, 2];
    // The third sheaf is filled up again, and the first.
    GiveToFull: free, "cmpxchg_cell", &[2 * SHEAF + 1, 2 + SHEAF];
}

ops! {
    Source::FarCache(RawCache::new(OBJECT));
    TakeFarther: alloc, "pop_object_single", &[1];
    TakeHotFarther: alloc, "pop_object_single", &[1, 1];
    GiveFarther: free, "push_object_single", &[3, 1];
    GiveHotFarther: free, "push_object_single", &[2];
}

ops! {
    Source::Class;
    TakeOfClass: alloc, "pop_object", &[1];
    GiveToClass: free, "push_object", &[2];
}

ops! {
    Source::ReadyClass;
    TakeOfReady: alloc, "pop_object_ready", &[1];
    GiveToReady: free, "push_object_ready", &[2];
}

ops! {
    Source::FrontClass;
    TakeOfFront: alloc, FRONT[0], &[1];
    GiveToFront: free, FRONT[1], &[2];
}

#[cfg(target_arch = "x86_64")]
ops! {
    Source::Assembly;
    TakeInAssembly: alloc, "pop_object_malloc_asm", &[1];
    GiveInAssembly: free, "push_object_malloc", &[2];
}

struct Call<O: Op> {
    store: Store,
    op: PhantomData<O>,
}

impl<O: Op> Subject for Call<O> {
    type Answer = Result<(), Wrong>;

    const CONFLICTS: &'static [Conflict] = CONFLICTS;

    fn drives(section: &str) -> bool {
        section == O::SECTION
    }

    fn new() -> Self {
        let store = Store::new((O::SOURCE)());
        store.calls(O::BEFORE);
        if O::SHRINKS {
            store.shrink().expect("nothing conflicts yet");
            store.calls(&[0, 1]);
        }
        Call { store, op: PhantomData }
    }

    fn op(&self) -> Self::Answer {
        (O::RUN)(&self.store)
    }

    fn book(&self, _: usize, _: bool) -> Self::Answer {
        Ok(())
    }

    /// Takes two objects and puts one on the lane that came out before: what a call must notice though the
    /// uppermost entry may be the one it saw.
    fn meddle(&self) -> Result<(), Wrong> {
        self.store.alloc()?;
        let newest = self.store.out.borrow_mut().pop();
        self.store.alloc()?;
        self.store.out.borrow_mut().splice(0..0, newest);
        self.store.free()
    }

    fn turn_gate(&self, _: Conflict) -> Result<(), Wrong> {
        // An object that the op has in hand is out, and not in the books.
        self.store.source.shrink();
        Ok(())
    }

    fn check(&mut self) -> Result<(), Wrong> {
        self.store.check()
    }
}

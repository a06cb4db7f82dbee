//! Caches: allocations from a lane, frees to a lane, and trades of whole sheaves.
//!
//! The cache decides which object an allocation returns. So the oracle knows which objects are
//! allocated, and their content: no call may return one of them, and in the end the cache must
//! report as many as the oracle knows.

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;

use thiscpu::__internal::HAS_DIRECT;
use thiscpu::{__test_support, CacheStats, RawCache};

use super::class::{self, CLASS, OBJECT, WORDS};
#[cfg(target_arch = "x86_64")]
use super::malloc_asm;
use crate::ops;
use crate::run_case::Case;
use crate::subject::{Conflict, Mismatch, Subject, expect};

pub(super) fn cases() -> Vec<Case> {
    let cases = [
        // The first of several frees only makes its object hot. The first allocation after them
        // takes the hot object.
        of(
            "RawCache",
            || Source::Cache(Box::new(RawCache::new(OBJECT)), false),
            &[
                ("alloc", FAST[0], &[&[1]]),
                ("alloc on a lane with a hot object", FAST[0], &[&[1, 1]]),
                ("free on a lane with a hot object", FAST[1], &[&[3, 1]]),
                ("free", FAST[1], &[&[2]]),
                // The first sheaf is empty.
                ("alloc on a lane with an empty sheaf", TRADE, &[&[SHEAF]]),
                // The second sheaf is filled and becomes the spare one. The first one comes back
                // and is emptied.
                ("alloc on a lane whose spare sheaf is full", TRADE, &[&[SHEAF + 1, 3, 2]]),
                ("alloc on a lane with two empty sheaves", TRADE, &[&[2 * SHEAF]]),
                ("free on a lane without sheaves", TRADE, &[&[3], &[0, 1]]),
                // The second sheaf is full again; the first one is empty.
                ("free on a lane whose spare sheaf is empty", TRADE, &[&[SHEAF + 1, 2]]),
                // The third sheaf is full again, and the first one.
                ("free on a lane with two full sheaves", TRADE, &[&[2 * SHEAF + 1, 2 + SHEAF]]),
            ],
        ),
        of(
            "RawCache of a thread without direct sections",
            || Source::Cache(Box::new(RawCache::new(OBJECT)), true),
            &[
                ("alloc", "pop_object_single", &[&[1]]),
                ("alloc on a lane with a hot object", "pop_object_single", &[&[1, 1]]),
                ("free on a lane with a hot object", "push_object_single", &[&[3, 1]]),
                ("free", "push_object_single", &[&[2]]),
            ],
        ),
        of(
            "class",
            || Source::Class,
            &[("alloc", "pop_object", &[&[1]]), ("free", "push_object", &[&[2]])],
        ),
        of(
            "class with ready sections",
            || Source::ReadyClass(class::FAR),
            &[("alloc", "pop_object_ready", &[&[1]]), ("free", "push_object_ready", &[&[2]])],
        ),
        of(
            "class with ready sections, at the end of the countdown",
            || Source::ReadyClass(0),
            &[("alloc", "pop_object_ready", &[&[1]])],
        ),
        of(
            "class in the malloc table",
            || Source::DirectClass(class::FAR),
            &[("alloc", FAST_MALLOC[0], &[&[1]]), ("free", FAST_MALLOC[1], &[&[2]])],
        ),
        of(
            "class in the malloc table, at the end of the countdown",
            || Source::DirectClass(0),
            &[("alloc", FAST_MALLOC[0], &[&[1]])],
        ),
        #[cfg(target_arch = "x86_64")]
        of(
            "class in the malloc table, in assembly",
            || Source::Assembly(class::FAR),
            &[
                ("alloc", "pop_object_malloc_asm", &[&[1]]),
                ("free", "push_object_malloc_asm", &[&[2]]),
            ],
        ),
        #[cfg(target_arch = "x86_64")]
        of(
            "class in the malloc table, in assembly, at the end of the countdown",
            || Source::Assembly(0),
            &[("alloc", "pop_object_malloc_asm", &[&[1]])],
        ),
    ];
    cases.into_iter().flatten().collect()
}

/// The calls before a lane is in a state: numbers of allocations and of frees, in turn.
///
/// Between two lists the lane is flushed.
type Before = &'static [&'static [usize]];

/// Returns the cases of a source, each with its call, its section, and the calls before it.
fn of(
    on: &'static str,
    source: fn() -> Source,
    calls: &[(&'static str, &'static str, Before)],
) -> Vec<Case> {
    let case = |&(call, section, before): &(&'static str, _, Before)| {
        let run = if call.starts_with("alloc") { Store::alloc } else { Store::free };
        let new = move || Call::new(source(), before, run);
        Case { section: Some(section), ..Case::new([on, call], CONFLICTS, new) }
    };
    calls.iter().map(case).collect()
}

const CONFLICTS: &[Conflict] = &[
    Conflict::SameLane,
    Conflict::Move,
    Conflict::Leave,
    Conflict::Vfork,
    Conflict::Close,
    Conflict::Always,
];

/// The capacity of a sheaf of such objects, which is the smallest one.
const SHEAF: usize = 4;
/// More objects than lanes and barns hold here.
const MANY: usize = 12 * SHEAF;

/// The section that trades sheaves.
const TRADE: &str = "cmpxchg_cell";
/// The sections of the fast path; architectures without direct sections use others.
const FAST: [&str; 2] = if HAS_DIRECT {
    ["pop_object_direct", "push_object_direct"]
} else {
    ["pop_object_single", "push_object_single"]
};
const FAST_MALLOC: [&str; 2] = if HAS_DIRECT {
    ["pop_object_malloc", "push_object_malloc"]
} else {
    ["pop_object", "push_object"]
};

/// A call on a source of objects.
type Run = fn(&Store) -> Result<(), Mismatch>;

/// A source of objects.
enum Source {
    /// A cache, and whether its thread has no direct sections.
    Cache(Box<RawCache>, bool),
    /// The class of `malloc`. There is one; each run leaves it empty.
    Class,
    /// The class, with sections that need no check for readiness.
    ///
    /// In this one and those below, the number is the countdown before each call.
    ReadyClass(u32),
    /// The class, with direct sections.
    DirectClass(u32),
    /// The class, by functions in assembly.
    #[cfg(target_arch = "x86_64")]
    Assembly(u32),
}

impl Source {
    fn alloc(&self) -> Option<NonNull<u8>> {
        match self {
            Source::Cache(cache, is_gated) => {
                is_gated.then(__test_support::disable_direct);
                ops::alloc(cache)
            }
            Source::Class => ops::alloc_of(class::checked(), class::checked()),
            Source::ReadyClass(calls) => ops::alloc_of(class::ready(*calls), class::checked()),
            Source::DirectClass(calls) => ops::alloc_of(class::direct(*calls), class::checked()),
            #[cfg(target_arch = "x86_64")]
            Source::Assembly(calls) => malloc_asm::alloc(*calls),
        }
    }

    /// # Safety
    ///
    /// The object must be from this source, and must not be used any more.
    unsafe fn free(&self, object: NonNull<u8>) {
        // SAFETY: the caller guarantees that the object is from this source and is no longer used.
        unsafe {
            match self {
                Source::Cache(cache, is_gated) => {
                    is_gated.then(__test_support::disable_direct);
                    ops::free(cache, object);
                }
                Source::Class => ops::free_of(class::checked(), class::checked(), object),
                Source::ReadyClass(calls) => {
                    ops::free_of(class::ready(*calls), class::checked(), object);
                }
                Source::DirectClass(calls) => {
                    ops::free_of(class::direct(*calls), class::checked(), object);
                }
                #[cfg(target_arch = "x86_64")]
                Source::Assembly(_) => malloc_asm::free(object),
            }
        }
    }

    fn shrink(&self) {
        match self {
            Source::Cache(cache, _) => drop(cache.shrink()),
            _ => class::checked().shrink(),
        }
    }

    fn stats(&self) -> CacheStats {
        match self {
            Source::Cache(cache, _) => cache.stats(),
            _ => CLASS.stats(),
        }
    }
}

/// A source, and the objects that are allocated from it.
struct Store {
    source: Source,
    /// Each with the number that all of its words hold.
    allocated: RefCell<Vec<(NonNull<u8>, usize)>>,
    last: Cell<usize>,
}

fn words(object: NonNull<u8>) -> *mut [usize; WORDS] {
    object.cast().as_ptr()
}

impl Store {
    fn new(source: Source) -> Store {
        Store { source, allocated: RefCell::default(), last: Cell::new(0) }
    }

    fn alloc(&self) -> Result<(), Mismatch> {
        let object = self.source.alloc().ok_or("an allocation found no memory")?;
        let mut allocated = self.allocated.borrow_mut();
        if allocated.iter().any(|&(other, _)| other == object) {
            return Err(format!("{object:?} was returned twice"));
        }
        // SAFETY: the object has this layout, its first word is initialized, and it has no other
        // owner.
        expect("the first word of a new object", &unsafe { (*words(object))[0] }, &0)?;
        let number = self.last.get() + 1;
        self.last.set(number);
        // SAFETY: the object has this layout and no other owner.
        unsafe { words(object).write([number; WORDS]) };
        allocated.push((object, number));
        Ok(())
    }

    /// Frees the oldest allocated object.
    fn free(&self) -> Result<(), Mismatch> {
        let (object, number) = self.allocated.borrow_mut().remove(0);
        // SAFETY: the object is allocated, and `alloc` has written all its words.
        let found = unsafe { words(object).read() };
        expect("the words of an object", &found, &[number; WORDS])?;
        // SAFETY: the object is from this source, and `allocated` does not contain it any more.
        unsafe { self.source.free(object) };
        Ok(())
    }

    /// Allocates and frees in turn, as often as `counts` says.
    fn calls(&self, counts: &[usize]) {
        let calls: [Run; 2] = [Store::alloc, Store::free];
        for (&count, call) in counts.iter().zip(calls.iter().cycle()) {
            (0..count).for_each(|_| call(self).expect("no conflict happens yet"));
        }
    }

    fn shrink(&self) -> Result<(), Mismatch> {
        self.source.shrink();
        let found = self.source.stats().objects_outside_slabs;
        expect("the allocated objects", &found, &self.allocated.borrow().len())
    }

    /// Allocates all free objects, frees all objects, and closes the cache.
    fn check(&mut self) -> Result<(), Mismatch> {
        (0..MANY).try_for_each(|_| self.alloc())?;
        self.shrink()?;
        while !self.allocated.borrow().is_empty() {
            self.free()?;
        }
        self.shrink()?;
        match std::mem::replace(&mut self.source, Source::Class) {
            Source::Cache(cache, _) => cache.close().map_err(|error| error.to_string()),
            _ => Ok(()),
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        for (object, _) in self.allocated.get_mut().drain(..) {
            // SAFETY: the object is from this source, and `allocated` does not contain it any more.
            unsafe { self.source.free(object) };
        }
    }
}

struct Call {
    store: Store,
    run: Run,
}

impl Call {
    fn new(source: Source, before: Before, run: Run) -> Self {
        let store = Store::new(source);
        for (number, counts) in before.iter().enumerate() {
            if number > 0 {
                store.shrink().expect("no conflict happens yet");
            }
            store.calls(counts);
        }
        Call { store, run }
    }
}

impl Subject for Call {
    type Answer = Result<(), Mismatch>;

    fn op(&self) -> Self::Answer {
        (self.run)(&self.store)
    }

    fn apply(&self, _: usize, _: bool) -> Self::Answer {
        Ok(())
    }

    /// Allocates two objects and frees an older one to the lane.
    ///
    /// A call must notice it, although the top of the sheaf may hold the value that it has loaded.
    fn conflict_here(&self) -> Result<(), Mismatch> {
        self.store.alloc()?;
        let newest = self.store.allocated.borrow_mut().pop();
        self.store.alloc()?;
        self.store.allocated.borrow_mut().splice(0..0, newest);
        self.store.free()
    }

    fn use_gate(&self, _: Conflict) -> Result<(), Mismatch> {
        // The counts are not checked: `allocated` does not contain the object of the running
        // operation.
        self.store.source.shrink();
        Ok(())
    }

    fn check(&mut self) -> Result<(), Mismatch> {
        self.store.check()
    }
}

//! Objects that stay constructed while they are free, as in Bonwick's slab allocator: what takes long to set up is set up
//! once, and an object that is handed out again is as its last user left it.
//!
//! So a free object has no word to spare, and its mark is behind it. The mark is its entry if the object is constructed; with the
//! lowest bit cleared, which is set in every entry, it says that there is no value yet. Who is handed such an object constructs it.
//! When all objects of a slab have come back the slab is *retired*: whoever comes next and holds no lock destroys what is
//! in it, and then the slab is given back. Until then the object that came back last is out, for everybody who counts.
//!
//! | mark | the object is |
//! |---|---|
//! | entry | free, constructed |
//! | entry - 1 | free, not constructed |
//! | 0 | in use, or being constructed or destroyed |

use core::ptr::{self, NonNull};

use super::barn::Barn;
use super::class::Handle;
use super::depot::Depot;
use super::entry;
use super::fault::{self, Fault};
use super::objects::Slab;
use crate::section::{Outcome, Processor, SlabSections as _};
use crate::sys::errno;

/// What begins and ends the objects of a class.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    context: usize,
    construct: unsafe fn(usize, NonNull<u8>),
    destroy: unsafe fn(NonNull<u8>),
}

impl Life {
    /// Objects that `construct` makes, which gets `context` too, and `destroy` ends. Both are called without a lock of the
    /// cache, on any thread that uses it, and may panic.
    ///
    /// # Safety
    ///
    /// `construct` may be called for memory of the class's size and alignment, whatever is in it, and `destroy` once for what
    /// that has made and users have left.
    pub const unsafe fn new(
        context: usize,
        construct: unsafe fn(usize, NonNull<u8>),
        destroy: unsafe fn(NonNull<u8>),
    ) -> Life {
        Life { context, construct, destroy }
    }
}

fn pointer(object: usize) -> Option<NonNull<u8>> {
    NonNull::new(ptr::with_exposed_provenance_mut(object))
}

impl Handle<'_> {
    /// A constructed object, from the lane or by `slowly`, which must come to
    /// [`alloc_constructed_slowly`](Handle::alloc_constructed_slowly). `None` if there is no memory.
    ///
    /// # Panics
    ///
    /// If the constructor does; the object is free again then.
    #[inline(always)]
    pub fn alloc_constructed_or(
        self,
        slowly: impl FnOnce() -> Option<NonNull<u8>>,
    ) -> Option<NonNull<u8>> {
        // SAFETY: the gate and the cell are a class's.
        match unsafe { Processor::take(self.group.gate.word(), self.cell) } {
            0 => slowly(),
            entry => self.hand_out_constructed(entry),
        }
    }

    /// The same where the lane has none.
    pub fn alloc_constructed_slowly(self) -> Option<NonNull<u8>> {
        let find = || {
            let _errno = errno::save();
            self.find_entry(self.depot()?)
        };
        let entry = find().or_else(|| {
            self.retire();
            find()
        });
        self.hand_out_constructed(entry?)
    }

    #[inline(always)]
    fn hand_out_constructed(self, entry: usize) -> Option<NonNull<u8>> {
        let object = self.group.key().object(entry);
        if !entry::unmark(object + self.class.shape.mark, entry) {
            return self.construct(object, entry);
        }
        pointer(object)
    }

    #[cold]
    #[inline(never)]
    fn construct(self, object: usize, entry: usize) -> Option<NonNull<u8>> {
        if !entry::unmark(object + self.class.shape.mark, entry::unmade(entry)) {
            return fault::written_to(object, self.class.shape.size);
        }
        let (life, depot, at) = (self.class.life?, self.class.depot_if_used()?, pointer(object)?);
        let unmade = Unmade { depot, entry };
        // SAFETY: it is of the class's size and alignment, nobody else's, and not constructed.
        unsafe { (life.construct)(life.context, at) };
        core::mem::forget(unmade);
        Some(at)
    }

    /// Frees an object, which stays constructed, to the lane or by `slowly`, which must come to
    /// [`free_constructed_slowly`](Handle::free_constructed_slowly) with the entry that it gets.
    ///
    /// # Safety
    ///
    /// The object is one of this class, and nobody uses it any more.
    #[inline(always)]
    pub unsafe fn free_constructed_or(self, object: NonNull<u8>, slowly: impl FnOnce(usize)) {
        let object = object.as_ptr().expose_provenance();
        let entry = self.group.key().entry(object);
        let mark = object + self.class.shape.mark;
        if entry::look(mark) | 1 == entry {
            return fault::freed_twice(object, self.class.shape.size);
        }
        let gate = self.group.gate.word();
        // SAFETY: the gate and the cell are a class's; the object is the caller's, who gives it up, and its mark is behind it.
        if unsafe { Processor::give(gate, self.cell, mark, entry) } != Outcome::Done {
            slowly(entry);
        }
    }

    /// The same where the lane has no room.
    ///
    /// # Panics
    ///
    /// If what ends the objects of a retired slab does; the object is freed all the same.
    pub fn free_constructed_slowly(self, entry: usize) {
        struct Freed<'a>(Handle<'a>, usize);
        impl Drop for Freed<'_> {
            fn drop(&mut self) {
                self.0.free_slowly(self.1);
            }
        }
        // Last, because then the cache may be closed.
        let _freed = Freed(self, entry);
        self.retire();
    }

    /// Destroys what is in retired slabs, and gives those back; not where somebody is at it, maybe further up on this
    /// stack, who then does it. No lock may be held.
    pub(super) fn retire(self) {
        let (Some(life), Some(depot)) = (self.class.life, self.class.depot_if_used()) else {
            return;
        };
        while depot.has_retired() {
            let Some(_guard) = depot.retiring.try_lock() else { return };
            while let Some((slab, barn, node)) = depot.pop_retired() {
                Retiring { depot, slab, barn, node, is_done: false }.destroy(life);
            }
        }
    }
}

/// An object whose constructor is under way. It goes back unconstructed if that panics.
struct Unmade {
    depot: &'static Depot,
    entry: usize,
}

impl Drop for Unmade {
    fn drop(&mut self) {
        self.depot.put_marked(self.entry, entry::unmade(self.entry));
    }
}

/// A retired slab that a thread has for itself. If a destructor panics it waits for the next thread.
struct Retiring {
    depot: &'static Depot,
    slab: &'static Slab,
    barn: &'static Barn,
    node: usize,
    is_done: bool,
}

impl Retiring {
    fn destroy(mut self, life: Life) {
        let kind = self.depot.kind;
        for object in (0..self.slab.used()).map(|index| self.slab.object(index)) {
            let entry = kind.key.entry(object);
            let mark = kind.mark_of(entry);
            if entry::look(mark) == entry {
                // First, so that none is destroyed twice, whatever comes of it; and by one store, so that a child that
                // is forked by another thread finds it free.
                entry::mark(mark, entry::unmade(entry));
                if let Some(at) = pointer(object) {
                    // SAFETY: it is constructed, free, and nobody else's.
                    unsafe { (life.destroy)(at) };
                }
            } else if entry::look(mark) != entry::unmade(entry) {
                Fault::WrittenTo.report(object, kind.shape.size);
            }
        }
        self.is_done = true;
    }
}

impl Drop for Retiring {
    fn drop(&mut self) {
        self.barn.end_retired(self.slab, self.is_done, self.node, self.depot.kind);
    }
}

//! Objects that stay constructed while they are free, as in Bonwick's slab allocator: what takes long to set up is set up
//! once, and an object that is handed out again is as its last user left it.
//!
//! So a free object has no word to spare, and its mark is behind it. The mark is its entry if the object is constructed; with the
//! lowest bit cleared, which is set in every entry, it says that there is no value yet. Who is handed such an object constructs it.
//! When all objects of a slab have come back the slab is *retired*: whoever comes next and holds no lock destroys what is
//! in it, and then the slab is given back. Who frees does so for a few slabs only, who shrinks for all. Until then the object that came back last is out, for everybody who counts.
//!
//! | mark | the object is |
//! |---|---|
//! | entry | free, constructed |
//! | entry - 1 | free, not constructed |
//! | 0 | in use, or being constructed or destroyed |

use core::ptr::{self, NonNull};

use super::{Handle, Lifecycle};
use crate::section::{Access, Outcome, Processor, SlabSections as _};
use crate::slab::arena::heap_error::{self, HeapError};
use crate::slab::arena::slab::Slab;
use crate::slab::backend::Backend;
use crate::slab::backend::node_slabs::NodeSlabs;
use crate::slab::lane::encoding;
use crate::sys::atomic::{
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence,
};
use crate::sys::errno;

fn pointer(object: usize) -> Option<NonNull<u8>> {
    NonNull::new(ptr::with_exposed_provenance_mut(object))
}

impl<A: Access> Handle<'_, A> {
    /// A constructed object, from the lane or by `slow`, which must come to
    /// [`alloc_constructed_slow`](Handle::alloc_constructed_slow). `None` if there is no memory.
    ///
    /// # Panics
    ///
    /// If the constructor does; the object is free again then.
    #[inline(always)]
    pub fn alloc_constructed_or(
        self,
        slow: impl FnOnce() -> Option<NonNull<u8>>,
    ) -> Option<NonNull<u8>> {
        // SAFETY: the gate and the cell are a class's, and the way's promise was given.
        match unsafe { Processor::pop_object::<A>(self.group.gate_ptr(), self.cell) } {
            0 => slow(),
            encoded => self.hand_out_constructed(encoded),
        }
    }

    /// The same where the lane has none.
    pub fn alloc_constructed_slow(self) -> Option<NonNull<u8>> {
        let find = || {
            let _errno = errno::save();
            self.find_object(self.backend()?)
        };
        let encoded = find().or_else(|| {
            // One slab that goes back is room for one.
            self.destroy_some_retired();
            find()
        });
        self.hand_out_constructed(encoded?)
    }

    #[inline(always)]
    fn hand_out_constructed(self, encoded: usize) -> Option<NonNull<u8>> {
        let object = self.group.key().decode(encoded);
        if !encoding::take_mark(object + self.class.shape.mark, encoded) {
            return self.construct(object, encoded);
        }
        pointer(object)
    }

    #[cold]
    #[inline(never)]
    fn construct(self, object: usize, encoded: usize) -> Option<NonNull<u8>> {
        if !encoding::take_mark(
            object + self.class.shape.mark,
            encoding::unconstructed_mark(encoded),
        ) {
            return heap_error::write_after_free(object);
        }
        let (lifecycle, backend, at) =
            (self.class.lifecycle?, self.class.backend_if_used()?, pointer(object)?);
        let guard = UnconstructedGuard { backend, encoded };
        // SAFETY: it is of the class's size and alignment, nobody else's, and not constructed.
        unsafe { (lifecycle.construct)(lifecycle.context, at) };
        core::mem::forget(guard);
        Some(at)
    }

    /// Frees an object, which stays constructed, to the lane or by `slow`, which must come to
    /// [`free_constructed_slow`](Handle::free_constructed_slow).
    ///
    /// # Safety
    ///
    /// The object is one of this class, and nobody uses it any more.
    #[inline(always)]
    pub unsafe fn free_constructed_or(self, object: NonNull<u8>, slow: impl FnOnce()) {
        let object = object.as_ptr().expose_provenance();
        let encoded = self.group.key().encode(object);
        let mark = object + self.class.shape.mark;
        if encoding::load_mark(mark) | 1 == encoded {
            return heap_error::double_free(object);
        }
        encoding::set_mark(mark, encoded);
        let gate = self.group.gate_ptr();
        // SAFETY: the gate and the cell are a class's, and the way's promise was given; the object is the caller's, who gives it up.
        if unsafe { Processor::push_object::<A>(gate, self.cell, encoded) } != Outcome::Committed {
            slow();
        }
    }

    /// The same where the lane has no room.
    ///
    /// # Panics
    ///
    /// If what ends the objects of a retired slab does; the object is freed all the same.
    ///
    /// # Safety
    ///
    /// As for [`free_constructed_or`](Handle::free_constructed_or).
    pub unsafe fn free_constructed_slow(self, object: NonNull<u8>) {
        struct FreeOnDrop<'a, A: Access>(Handle<'a, A>, NonNull<u8>);
        impl<A: Access> Drop for FreeOnDrop<'_, A> {
            fn drop(&mut self) {
                // SAFETY: the promise of the caller of whoever made this.
                unsafe { self.0.free_slow(self.1) };
            }
        }
        // Last, because then the cache may be closed.
        let _freed = FreeOnDrop(self, object);
        self.destroy_some_retired();
    }

    /// Destroys what is in a few retired slabs, and gives those back: for who frees, and has others' objects to destroy then. Not
    /// where somebody is at it, maybe further up on this stack. No lock may be held.
    fn destroy_some_retired(self) {
        if let Some((lifecycle, backend)) = self.with_retired() {
            destroy_retired(backend, lifecycle, backend.slabs_to_destroy());
            destroy_requested(backend, lifecycle);
        }
    }

    /// The same for all that there are; where somebody is at it they do it.
    pub(super) fn destroy_all_retired(self) {
        if let Some((lifecycle, backend)) = self.with_retired() {
            if !destroy_retired(backend, lifecycle, usize::MAX) {
                // Release: pairs with the Acquire in `retire`, so that what was retired before is seen there. A swap, so that this
                // holds for all who want it.
                backend.all_requested.swap(true, Release);
            }
            destroy_requested(backend, lifecycle);
        }
    }

    fn with_retired(self) -> Option<(Lifecycle, &'static Backend)> {
        let backend = self.class.backend_if_used().filter(|backend| backend.has_retired())?;
        Some((self.class.lifecycle?, backend))
    }
}

/// Destroys what is in so many retired slabs, or in all that there are now if somebody wants that. False if another is at it.
fn destroy_retired(backend: &'static Backend, lifecycle: Lifecycle, most: usize) -> bool {
    let Some(_guard) = backend.retiring.try_lock() else { return false };
    let mut left = most;
    loop {
        // Acquire: pairs with the Release in `destroy_all_retired`.
        if backend.all_requested.swap(false, Acquire) {
            // Not those that come back meanwhile: who frees is not kept for ever.
            left = left.max(backend.slabs());
        }
        let Some(rest) = left.checked_sub(1) else { break };
        let Some((slab, node_slabs, node)) = backend.take_retired() else { break };
        left = rest;
        RetiredSlab { backend, slab, node_slabs, node, is_done: false }.destroy(lifecycle);
    }
    true
}

/// Does what somebody wanted who could not have the lock.
fn destroy_requested(backend: &'static Backend, lifecycle: Lifecycle) {
    loop {
        // SeqCst: pairs with itself on another thread. It is between what one wants and a look at the lock, and between the end of
        // the lock and a look at what is wanted: so one of the two sees the other, and does it.
        fence(SeqCst);
        if !backend.all_requested.load(Relaxed) || !destroy_retired(backend, lifecycle, 0) {
            return;
        }
    }
}

/// An object whose constructor is under way. It goes back unconstructed if that panics.
struct UnconstructedGuard {
    backend: &'static Backend,
    encoded: usize,
}

impl Drop for UnconstructedGuard {
    fn drop(&mut self) {
        self.backend.free_with_mark(self.encoded, encoding::unconstructed_mark(self.encoded));
    }
}

/// A retired slab that a thread has for itself. If a destructor panics it waits for the next thread.
struct RetiredSlab {
    backend: &'static Backend,
    slab: &'static Slab,
    node_slabs: &'static NodeSlabs,
    node: usize,
    is_done: bool,
}

impl RetiredSlab {
    fn destroy(mut self, lifecycle: Lifecycle) {
        let info = self.backend.info;
        for object in (0..self.slab.used()).map(|index| self.slab.object_address(index)) {
            let encoded = info.key.encode(object);
            let mark = info.mark_of(encoded);
            if encoding::load_mark(mark) == encoded {
                // First, so that none is destroyed twice, whatever comes of it; and by one store, so that a child that
                // is forked by another thread finds it free.
                encoding::set_mark(mark, encoding::unconstructed_mark(encoded));
                if let Some(at) = pointer(object) {
                    // SAFETY: it is constructed, free, and nobody else's.
                    unsafe { (lifecycle.destroy)(at) };
                }
            } else if encoding::load_mark(mark) != encoding::unconstructed_mark(encoded) {
                HeapError::WriteAfterFree.report(object, info.shape.size);
            }
        }
        self.is_done = true;
    }
}

impl Drop for RetiredSlab {
    fn drop(&mut self) {
        self.node_slabs.finish_retired(self.slab, self.is_done, self.node, self.backend.info);
    }
}

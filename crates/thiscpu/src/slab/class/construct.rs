//! Objects that stay constructed while they are free, as in Bonwick's slab allocator.
//!
//! Costly construction happens once: an object allocated again is as its last user left it. So a
//! free object has no word to spare, and its mark is behind it. Encoded pointers have their lowest
//! bit set. A mark with that bit cleared says that the object is free but not constructed; the
//! thread that allocates it constructs it.
//!
//! When all objects of a slab have come back, the slab is *retired*. Objects of retired slabs are
//! destroyed by a later call that holds no lock, and then the slab is freed. A call that frees does
//! so for a few slabs, a shrinking one for all. Until then the object that came back last counts as
//! allocated.
//!
//! | mark | the object is |
//! |---|---|
//! | encoded pointer | free, constructed |
//! | encoded pointer - 1 | free, not constructed |
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
    /// Allocates a constructed object from the lane, or else by `slow`.
    ///
    /// `slow` must end up in [`alloc_constructed_slow`](Handle::alloc_constructed_slow). Returns
    /// `None` if there is no memory, or if the constructor made no object.
    ///
    /// # Panics
    ///
    /// If the constructor panics; the object is free again then.
    #[inline(always)]
    pub fn alloc_constructed_or(
        self,
        slow: impl FnOnce() -> Option<NonNull<u8>>,
    ) -> Option<NonNull<u8>> {
        // SAFETY: `gate_ptr` is the gate of a group in which this class has its cell. The handle's
        // maker guaranteed what the access `A` requires.
        match unsafe { Processor::pop_object::<A>(self.group.gate_ptr(), self.cell) } {
            0 => slow(),
            encoded => self.hand_out_constructed(encoded),
        }
    }

    /// Allocates a constructed object where the lane has none.
    ///
    /// # Panics
    ///
    /// If a constructor or destructor panics; no object is lost then.
    pub fn alloc_constructed_slow(self) -> Option<NonNull<u8>> {
        let find = || {
            let _errno = errno::save();
            self.find_object(self.backend()?)
        };
        let encoded = find().or_else(|| {
            // A retired slab that is freed makes room for a new one.
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
        // SAFETY: `at` is an object of this class, so it has the size and alignment that
        // `construct` needs. It was just popped, so no one else uses it, and its mark says that it
        // is not constructed.
        let is_constructed = unsafe { (lifecycle.construct)(lifecycle.context, at) };
        is_constructed.then(|| {
            core::mem::forget(guard);
            at
        })
    }

    /// Frees an object, which stays constructed, to the lane, or else by `slow`.
    ///
    /// `slow` must end up in [`free_constructed_slow`](Handle::free_constructed_slow).
    ///
    /// # Safety
    ///
    /// The caller guarantees that `object` is of this class and no longer used.
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
        // SAFETY: `gate` is the gate of a group in which this class has its cell. The handle's
        // maker guaranteed what the access `A` requires. `encoded` is not 0, and the caller gives
        // its object up.
        if unsafe { Processor::push_object::<A>(gate, self.cell, encoded) } != Outcome::Committed {
            slow();
        }
    }

    /// Frees an object, which stays constructed, where the lane has no room.
    ///
    /// # Panics
    ///
    /// If the destructor of another object, of a retired slab, panics; `object` is freed in any
    /// case.
    ///
    /// # Safety
    ///
    /// The caller guarantees that `object` is of this class and no longer used.
    pub unsafe fn free_constructed_slow(self, object: NonNull<u8>) {
        struct FreeOnDrop<'a, A: Access>(Handle<'a, A>, NonNull<u8>);
        impl<A: Access> Drop for FreeOnDrop<'_, A> {
            fn drop(&mut self) {
                // SAFETY: the caller of `free_constructed_slow` guarantees that the object is of
                // this class and no longer used. It is freed only here.
                unsafe { self.0.free_slow(self.1) };
            }
        }
        // Dropped last, because the cache may be closed once the object is free.
        let _freed = FreeOnDrop(self, object);
        self.destroy_some_retired();
    }

    /// Destroys the objects of a few retired slabs, and frees those slabs.
    ///
    /// For a call that frees, which would otherwise destroy many objects of others. Does nothing if
    /// another call is at it, maybe further up this stack. The caller holds no lock.
    fn destroy_some_retired(self) {
        if let Some((lifecycle, backend)) = self.with_retired() {
            destroy_retired(backend, lifecycle, backend.slabs_to_destroy());
            destroy_requested(backend, lifecycle);
        }
    }

    /// Destroys the objects of all retired slabs, or has a call do it that is already at it.
    pub(super) fn destroy_all_retired(self) {
        if let Some((lifecycle, backend)) = self.with_retired() {
            if !destroy_retired(backend, lifecycle, usize::MAX) {
                // Release: pairs with the Acquire in `destroy_retired`, which then sees the slabs
                // retired before. A swap continues the release sequence of other requests, so that
                // this holds for each of them.
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

/// Destroys up to `most` retired slabs, or all requested; false if another thread is at it.
fn destroy_retired(backend: &'static Backend, lifecycle: Lifecycle, most: usize) -> bool {
    let Some(_guard) = backend.destroy_lock.try_lock() else { return false };
    let mut left = most;
    loop {
        // Acquire: pairs with the Release in `destroy_all_retired`.
        if backend.all_requested.swap(false, Acquire) {
            // As many as there are now, so that a call that frees does not go on forever.
            left = left.max(backend.slabs());
        }
        let Some(rest) = left.checked_sub(1) else { break };
        let Some((slab, node_slabs, node)) = backend.take_retired() else { break };
        left = rest;
        RetiredSlab { backend, slab, node_slabs, node, is_done: false }.destroy(lifecycle);
    }
    true
}

/// Destroys what was requested by threads that could not take the lock.
fn destroy_requested(backend: &'static Backend, lifecycle: Lifecycle) {
    loop {
        // SeqCst: pairs with this fence on another thread. One thread stores a request, then finds
        // the lock taken. The other releases the lock, then checks for requests. The fences are in
        // between, so at least one of the two sees the other.
        fence(SeqCst);
        if !backend.all_requested.load(Relaxed) || !destroy_retired(backend, lifecycle, 0) {
            return;
        }
    }
}

/// An object whose constructor is running. If it fails, the object is freed unconstructed.
struct UnconstructedGuard {
    backend: &'static Backend,
    encoded: usize,
}

impl Drop for UnconstructedGuard {
    fn drop(&mut self) {
        self.backend.free_with_mark(self.encoded, encoding::unconstructed_mark(self.encoded));
    }
}

/// A retired slab that a thread destroys. If a destructor panics, the slab is retired again.
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
        for object in (0..self.slab.handed_out()).map(|index| self.slab.object_address(index)) {
            let encoded = info.key.encode(object);
            let mark = info.mark_of(encoded);
            if encoding::load_mark(mark) == encoded {
                // Stored before the destructor runs, so that no object is destroyed twice even if
                // it panics. One store, so that a child forked by another thread finds the object
                // free.
                encoding::set_mark(mark, encoding::unconstructed_mark(encoded));
                if let Some(at) = pointer(object) {
                    // SAFETY: the mark said that the object is constructed and free. Its slab was
                    // taken by this thread, so no one else uses it, and the mark now rules out a
                    // second call.
                    unsafe { (lifecycle.destroy)(lifecycle.context, at) };
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

//! Classes of objects, and groups of classes: what calls find what they need with.
//!
//! The classes of a group share a gate, a key and an item in the lanes, in which each has its part. So what a call has to load does
//! not depend on the class, which may have to be found out first: a call that frees a block, and begins with the
//! address, waits for one load less. A group of one class has a front too, where its near sections find the item without the gate.

mod construct;
mod direct;
mod group;
pub(crate) mod shrink;
mod slow;

#[cfg(thiscpu_model)]
pub(super) use group::DirectUse;
pub use group::Group;
#[cfg(not(thiscpu_model))]
pub use group::KEY;

use core::marker::PhantomData;
use core::ptr::{self, NonNull};

use super::arena::slab::{self, Shape, Slab};
use super::arena::{Tag, heap_error, purge};
use super::backend::Backend;
use super::backend::node_slabs::{self, CacheInfo};
use super::lane::{self, encoding};
use crate::section::{
    Access, Checked, Direct, DirectMalloc, Outcome, Processor, Ready, Single, SlabSections as _,
};
use crate::sys::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::sys::startup;

/// What a class has of its own.
#[derive(Debug)]
pub struct Class {
    /// The address of its [`Backend`], once it is used.
    backend: AtomicUsize,
    pub(super) shape: Shape,
    tag: Tag,
    /// What begins and ends its objects, if they stay constructed.
    lifecycle: Option<Lifecycle>,
}

/// What begins and ends the objects of a class.
#[derive(Clone, Copy, Debug)]
pub struct Lifecycle {
    context: usize,
    construct: unsafe fn(usize, NonNull<u8>),
    destroy: unsafe fn(NonNull<u8>),
}

impl Lifecycle {
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
    ) -> Lifecycle {
        Lifecycle { context, construct, destroy }
    }
}

/// A class of a group, and what is known when its sections are entered.
#[derive(Clone, Copy, Debug)]
pub struct Handle<'a, A: Access = Checked> {
    group: &'a Group,
    class: &'a Class,
    /// Where its part of the item begins.
    cell: usize,
    access: PhantomData<A>,
}

/// The bytes of a class's part of the item.
pub const CELL_BYTES: usize = lane::CELL_BYTES;

/// The largest object of a class, in bytes.
pub(super) const SIZE_MAX: usize = 1024 * 1024;
pub(super) const ALIGN_MAX: usize = 64 * 1024;

impl Class {
    /// Objects of so many bytes at multiples of `align`; `tag` is what is said of their addresses.
    pub const fn new(size: usize, align: usize, tag: Tag) -> Class {
        assert!(size <= SIZE_MAX, "objects of a cache have at most a mebibyte");
        assert!(align <= ALIGN_MAX, "objects of a cache are aligned to at most 65,536 bytes");
        // One without bytes has an address of its own too, at a multiple of its alignment.
        let size = if size > slab::OBJECT_BYTES_MIN { size } else { slab::OBJECT_BYTES_MIN };
        let align = if align > slab::OBJECT_BYTES_MIN { align } else { slab::OBJECT_BYTES_MIN };
        let shape = Shape::of(size.next_multiple_of(align));
        Class { backend: AtomicUsize::new(0), shape, tag, lifecycle: None }
    }

    /// The same for objects that stay constructed while they are free. Each has its mark behind it.
    pub const fn constructed(size: usize, align: usize, tag: Tag, lifecycle: Lifecycle) -> Class {
        // Behind an object without bytes too, so that the distance is not 0.
        let mark = if size > 8 { size.next_multiple_of(8) } else { 8 };
        let class = Class::new(mark + 8, align, tag);
        Class { shape: Shape { mark, ..class.shape }, lifecycle: Some(lifecycle), ..class }
    }

    /// What is behind the lanes, if the class was ever used.
    pub(super) fn backend_if_used(&self) -> Option<&'static Backend> {
        // Acquire: pairs with the Release in `begin`.
        let backend = self.backend.load(Acquire) as *const Backend;
        // SAFETY: a backend lives for ever, and is this class's until its cache is closed.
        unsafe { backend.as_ref() }
    }

    /// Of a class that is closed.
    pub(super) fn give_up(&self, backend: &'static Backend) {
        self.backend.store(0, Relaxed);
        backend.release();
    }
}

impl Group {
    /// The class of the group whose part of the item is at `cell`: its number times [`CELL_BYTES`]. In a group of several number 0 is no class's:
    /// what is there stays 0, which is where classes without a sheaf lead to.
    #[inline(always)]
    pub const fn handle<'a>(&'a self, class: &'a Class, cell: usize) -> Handle<'a, Checked> {
        debug_assert!(self.cells == 1 || cell != 0, "the first cell of several is nobody's");
        Handle { group: self, class, cell, access: PhantomData }
    }

    /// The same for the first class.
    #[inline(always)]
    pub(super) const fn single<'a>(&'a self, class: &'a Class) -> Handle<'a, Single> {
        Handle { group: self, class, cell: 0, access: PhantomData }
    }

    /// The same for a thread that may have been let in.
    #[inline(always)]
    pub(super) const fn direct<'a>(&'a self, class: &'a Class) -> Handle<'a, Direct> {
        Handle { group: self, class, cell: 0, access: PhantomData }
    }

    /// The class of the group at the front, for a thread that may have been let in.
    ///
    /// # Safety
    ///
    /// This is that group.
    #[inline(always)]
    pub const unsafe fn direct_malloc<'a>(
        &'a self,
        class: &'a Class,
        cell: usize,
    ) -> Handle<'a, DirectMalloc> {
        Handle { group: self, class, cell, access: PhantomData }
    }

    /// The same where sections can be entered.
    ///
    /// # Safety
    ///
    /// [`sections_are_ready`](crate::__internal::sections_are_ready) has said so, before this.
    #[inline(always)]
    pub const unsafe fn ready<'a>(&'a self, class: &'a Class, cell: usize) -> Handle<'a, Ready> {
        Handle { group: self, class, cell, access: PhantomData }
    }
}

impl<A: Access> Handle<'_, A> {
    /// An object, from the lane or by `slow`, which must come to [`alloc_slow`](Handle::alloc_slow).
    #[inline(always)]
    pub fn alloc_or(self, slow: impl FnOnce() -> Option<NonNull<u8>>) -> Option<NonNull<u8>> {
        // SAFETY: the gate and the cell are a class's, and the way's promise was given.
        match unsafe { Processor::pop_object::<A>(self.group.gate_ptr(), self.cell) } {
            0 => slow(),
            encoded => self.hand_out(encoded),
        }
    }

    /// The object of an entry that was just taken.
    #[inline(always)]
    pub(super) fn hand_out(self, encoded: usize) -> Option<NonNull<u8>> {
        let key = self.group.key();
        let object = key.decode(encoded);
        if !encoding::subtract_from_mark(object, encoded) {
            return write_after_free(object, encoded);
        }
        NonNull::new(ptr::with_exposed_provenance_mut(object))
    }

    /// Frees an object, to the lane or by `slow`, which must come to [`free_slow`](Handle::free_slow).
    ///
    /// # Safety
    ///
    /// The object is one of this class, and nobody uses it any more.
    #[inline(always)]
    pub unsafe fn free_or(self, object: NonNull<u8>, slow: impl FnOnce()) {
        let key = self.group.key();
        let object = object.as_ptr().expose_provenance();
        let encoded = key.encode(object);
        if encoding::load_mark(object) == encoded {
            return heap_error::double_free(object);
        }
        encoding::set_mark(object, encoded);
        // SAFETY: the caller's promise.
        if !unsafe { self.push(encoded) } {
            slow();
        }
    }

    /// Frees an object that another way has marked as free, and not got into its lane; whether it is in there now.
    ///
    /// # Safety
    ///
    /// As for [`free_or`](Handle::free_or).
    #[inline(always)]
    pub unsafe fn free_marked(self, object: NonNull<u8>) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.push(self.group.key().encode(object.as_ptr().expose_provenance())) }
    }

    /// Puts an entry into the lane, if there is room.
    ///
    /// # Safety
    ///
    /// It is an object's of this class, which nobody uses any more.
    #[inline(always)]
    unsafe fn push(self, encoded: usize) -> bool {
        let gate = self.group.gate_ptr();
        // SAFETY: the gate and the cell are a class's, and the way's promise was given; the object is the caller's, who gives it up.
        unsafe { Processor::push_object::<A>(gate, self.cell, encoded) == Outcome::Committed }
    }

    fn backend(self) -> Option<&'static Backend> {
        self.class.backend_if_used().or_else(|| self.begin())
    }

    /// The first use. `None` if there is no memory.
    #[cold]
    fn begin(self) -> Option<&'static Backend> {
        let _ = startup::tier_or_panic();
        let _guard = self.group.lock.lock();
        if let Some(backend) = self.class.backend_if_used() {
            return Some(backend);
        }
        let key = self.group.begin();
        let Class { shape, tag, .. } = *self.class;
        let backend = Backend::create(|owner| CacheInfo { owner, shape, tag, key })?;
        // Release: pairs with the Acquire in `backend_if_used`.
        self.class.backend.store(core::ptr::from_ref(backend) as usize, Release);
        Some(backend)
    }

    /// How many objects a sheaf holds that is made now: after so many calls, about, one finds its lane empty.
    pub fn sheaf_capacity(self) -> usize {
        self.class.backend_if_used().map_or(1, Backend::capacity)
    }

    /// How many sheaves lanes have traded so far.
    pub fn trades(self) -> u64 {
        self.class.backend_if_used().map_or(0, Backend::trades)
    }

    /// How many slabs it has.
    pub fn slabs(self) -> usize {
        self.class.backend_if_used().map_or(0, Backend::slabs)
    }

    /// How many objects are kept behind the lanes.
    pub fn objects_in_barns(self) -> usize {
        self.class.backend_if_used().map_or(0, Backend::objects_in_barns)
    }

    /// How many bytes of objects are kept behind the lanes that nobody has needed since [`begin_window`](Handle::begin_window), about.
    pub fn unused_bytes(self) -> usize {
        self.class.backend_if_used().map_or(0, Backend::unused_objects) * self.class.shape.size
    }

    /// Gives up to `most` sheaves of those back to the slabs. How many.
    pub fn flush_unused(self, most: usize) -> usize {
        self.class.backend_if_used().map_or(0, |backend| backend.flush_unused(most))
    }

    /// From now on it is counted anew what nobody needs. One caller has a use for this.
    pub fn begin_window(self) {
        if let Some(backend) = self.class.backend_if_used() {
            backend.begin_window();
        }
    }

    /// Frees an object into its slab, past the lane and what is behind that.
    ///
    /// # Safety
    ///
    /// As for [`free_or`](Handle::free_or).
    pub unsafe fn free_to_slab(self, object: NonNull<u8>) {
        if let Some(backend) = self.class.backend_if_used() {
            backend.free_object(backend.info.key.encode(object.as_ptr().expose_provenance()));
            purge::purge_if_excess();
        }
    }

    /// Ends the process, with what is wrong, if no object of this class begins at an address.
    pub fn check(self, object: NonNull<u8>) {
        if let Some(backend) = self.class.backend_if_used() {
            node_slabs::find_object(object.as_ptr().addr(), backend.info);
        }
    }

    /// Whether an object of this class begins at an address.
    pub fn is_object(self, address: usize) -> bool {
        let Some(backend) = self.class.backend_if_used() else { return false };
        let slab = Slab::containing(address).filter(|slab| slab.owner() == backend.info.owner);
        slab.is_some_and(|slab| slab.object_at(address).is_some())
    }
}

/// What an object has in place of its mark is there again, and then that is said.
#[cold]
#[inline(never)]
fn write_after_free(object: usize, encoded: usize) -> Option<NonNull<u8>> {
    encoding::add_to_mark(object, encoded);
    heap_error::write_after_free(object)
}

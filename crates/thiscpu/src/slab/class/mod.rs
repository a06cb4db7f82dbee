//! Classes of objects, groups of classes, and the handles by which calls use them.
//!
//! The classes of a group share a gate, a key and an item in the lanes, in which each class has a
//! cell. So the loads of a call do not depend on its class. A call that frees a block must first
//! find the class by the address, and so waits for one load less. A group of a single class also
//! has a direct table, by which its direct sections find the item without the gate.

mod construct;
mod direct;
pub(crate) mod free_pages;
mod group;
mod lane_limit;
pub(crate) mod shrink;
mod slow;
mod tick;

#[cfg(thiscpu_model)]
pub(super) use group::DirectUse;
pub use group::Group;

use core::marker::PhantomData;
use core::ptr::{self, NonNull};

use super::arena::slab::{self, Shape, Slab};
use super::arena::{self, Tag, heap_error, in_use, purge};
use super::backend::Backend;
use super::backend::barn::Window;
use super::backend::cache_info::CacheInfo;
use super::backend::node_slabs;
use super::lane::{self, CacheCell, encoding};
use crate::section::{
    Access, Checked, Direct, DirectMalloc, Outcome, Processor, Ready, Single, SlabSections as _,
};
use crate::sys::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::sys::startup;

/// A class: the objects of one size and lifecycle.
#[derive(Debug)]
pub struct Class {
    /// The address of the class's [`Backend`], or 0 before its first use.
    backend: AtomicUsize,
    pub(super) shape: Shape,
    tag: Tag,
    /// Constructor and destructor, if objects stay constructed while they are free.
    lifecycle: Option<Lifecycle>,
}

/// The constructor and destructor of a class's objects.
#[derive(Clone, Copy, Debug)]
pub struct Lifecycle {
    context: usize,
    construct: unsafe fn(usize, NonNull<u8>) -> bool,
    destroy: unsafe fn(usize, NonNull<u8>),
}

impl Lifecycle {
    /// Creates a lifecycle from a constructor and a destructor, which both also get `context`.
    ///
    /// Both are called on any thread that uses the cache, without a lock of the cache. Both may
    /// panic. The constructor returns whether it made an object.
    ///
    /// # Safety
    ///
    /// The caller guarantees that `construct` may be called with `context` for memory of the
    /// class's size and alignment, whatever it holds. `destroy` must be callable with `context`,
    /// once for each object that `construct` made, as users left it.
    pub const unsafe fn new(
        context: usize,
        construct: unsafe fn(usize, NonNull<u8>) -> bool,
        destroy: unsafe fn(usize, NonNull<u8>),
    ) -> Lifecycle {
        Lifecycle { context, construct, destroy }
    }
}

/// A class of a group, with the kind of access that its sections use.
#[derive(Clone, Copy, Debug)]
pub struct Handle<'a, A: Access = Checked> {
    group: &'a Group,
    class: &'a Class,
    /// Offset of the class's cell in the item.
    cell: usize,
    access: PhantomData<A>,
}

/// Bytes of a class's cell in the item.
pub const CELL_BYTES: usize = lane::CELL_BYTES;

/// The largest object of a class, in bytes.
pub(super) const SIZE_MAX: usize = 1024 * 1024;
/// The largest object of a class of large objects, in bytes.
const LARGE_SIZE_MAX: usize = 4 * 1024 * 1024;
pub(super) const ALIGN_MAX: usize = 64 * 1024;

impl Class {
    /// Creates a class of objects of `size` bytes at multiples of `align`, in slabs tagged `tag`.
    pub const fn new(size: usize, align: usize, tag: Tag) -> Class {
        assert!(size <= SIZE_MAX, "cache object too large: at most 1 MiB");
        assert!(align <= ALIGN_MAX, "cache alignment too large: at most 64 KiB");
        // An object of no bytes has an address of its own too, at a multiple of its alignment.
        let size = if size > slab::OBJECT_BYTES_MIN { size } else { slab::OBJECT_BYTES_MIN };
        let align = if align > slab::OBJECT_BYTES_MIN { align } else { slab::OBJECT_BYTES_MIN };
        let shape = Shape::of(size.next_multiple_of(align));
        Class::of_shape(shape, tag)
    }

    /// Creates a class of large objects of `size` bytes, in slabs tagged `tag`.
    ///
    /// Its slabs waste less than those of other classes, and may hold a single object. Its lanes
    /// keep fewer objects.
    pub const fn large(size: usize, tag: Tag) -> Class {
        assert!(size <= LARGE_SIZE_MAX, "large objects have at most 4 MiB");
        assert!(size > in_use::HALF_BYTES, "large objects have more than half a chunk");
        assert!(arena::is_large_class(tag), "classes of large objects have tags of their own");
        Class::of_shape(Shape::of_large(size), tag)
    }

    /// Creates a class of objects that stay constructed; each has its mark behind it.
    pub const fn constructed(size: usize, align: usize, tag: Tag, lifecycle: Lifecycle) -> Class {
        // At least 8, because a distance of 0 means that the mark is the object's first word.
        let mark = if size > 8 { size.next_multiple_of(8) } else { 8 };
        let class = Class::new(mark + 8, align, tag);
        Class { shape: Shape { mark, ..class.shape }, lifecycle: Some(lifecycle), ..class }
    }

    const fn of_shape(shape: Shape, tag: Tag) -> Class {
        Class { backend: AtomicUsize::new(0), shape, tag, lifecycle: None }
    }

    pub(super) fn backend_if_used(&self) -> Option<&'static Backend> {
        // Acquire: pairs with the Release in `init_backend`, so that the backend is initialized.
        let backend = self.backend.load(Acquire) as *const Backend;
        // SAFETY: `backend` is 0 or the address of a backend. Backends stay mapped forever, and
        // this one is the class's until its cache is closed.
        unsafe { backend.as_ref() }
    }

    /// Releases the backend of a class whose cache is closed.
    pub(super) fn close(&self, backend: &'static Backend) {
        self.backend.store(0, Relaxed);
        backend.release();
    }
}

impl Group {
    /// Returns a handle of the class at `cell`, which is its number times [`CELL_BYTES`].
    ///
    /// In a group of several classes no class has number 0. That cell stays 0, because the word at
    /// its `top` serves as the end of a missing sheaf.
    #[inline(always)]
    pub const fn handle<'a>(&'a self, class: &'a Class, cell: usize) -> Handle<'a, Checked> {
        debug_assert!(self.cells == 1 || cell != 0, "no class of several has the first cell");
        Handle { group: self, class, cell, access: PhantomData }
    }

    /// Returns a handle of the only class of a group.
    #[inline(always)]
    pub(super) const fn single<'a>(&'a self, class: &'a Class) -> Handle<'a, Single> {
        Handle { group: self, class, cell: 0, access: PhantomData }
    }

    /// Returns a handle of the only class of a group whose sections use the direct table.
    #[inline(always)]
    pub(super) const fn direct<'a>(&'a self, class: &'a Class) -> Handle<'a, Direct> {
        Handle { group: self, class, cell: 0, access: PhantomData }
    }

    /// Returns a handle of a class of malloc's group whose sections use malloc's direct table.
    ///
    /// # Safety
    ///
    /// The caller guarantees that the group was created by [`for_malloc`](Group::for_malloc).
    #[inline(always)]
    pub const unsafe fn direct_malloc<'a>(
        &'a self,
        class: &'a Class,
        cell: usize,
    ) -> Handle<'a, DirectMalloc> {
        Handle { group: self, class, cell, access: PhantomData }
    }

    /// Returns a handle of the class at `cell` whose sections do not check for registration.
    ///
    /// # Safety
    ///
    /// The caller guarantees that [`sections_are_ready`](crate::__internal::sections_are_ready) has
    /// returned true.
    #[inline(always)]
    pub const unsafe fn ready<'a>(&'a self, class: &'a Class, cell: usize) -> Handle<'a, Ready> {
        Handle { group: self, class, cell, access: PhantomData }
    }
}

impl<A: Access> Handle<'_, A> {
    /// Allocates an object from the lane, or else by `slow`.
    ///
    /// `slow` must end up in [`alloc_slow`](Handle::alloc_slow).
    #[inline(always)]
    pub fn alloc_or(self, slow: impl FnOnce() -> Option<NonNull<u8>>) -> Option<NonNull<u8>> {
        // SAFETY: `gate_ptr` is the gate of a group in which this class has its cell, followed by
        // the direct table. The handle's maker guaranteed what the access `A` requires.
        match unsafe { Processor::pop_object::<A>(self.group.gate_ptr(), self.cell) } {
            0 => slow(),
            encoded => self.hand_out(encoded),
        }
    }

    /// Returns the object of an encoded pointer just popped, after clearing its mark.
    #[inline(always)]
    pub(super) fn hand_out(self, encoded: usize) -> Option<NonNull<u8>> {
        let key = self.group.key();
        let object = key.decode(encoded);
        if !encoding::subtract_from_mark(object, encoded) {
            return write_after_free(object, encoded);
        }
        NonNull::new(ptr::with_exposed_provenance_mut(object))
    }

    /// Notes that a large object just allocated is in use.
    ///
    /// Returns whether it is all zero, as far as is known. Each call that allocates a large object
    /// must call this, because it clears the word that says so, for the next owner.
    #[inline(always)]
    pub fn begin_use(self, object: NonNull<u8>) -> bool {
        let object = object.as_ptr().expose_provenance();
        in_use::begin(object);
        let (word, mark) =
            (encoding::zero_word(object), encoding::zero_mark(self.group.key().encode(object)));
        let is_zero = encoding::load_mark(word) == mark;
        encoding::set_mark(word, 0);
        is_zero
    }

    /// Frees an object to the lane, or else by `slow`.
    ///
    /// `slow` must end up in [`free_slow`](Handle::free_slow).
    ///
    /// # Safety
    ///
    /// The caller guarantees that `object` is of this class and no longer used.
    #[inline(always)]
    pub unsafe fn free_or(self, object: NonNull<u8>, slow: impl FnOnce()) {
        let key = self.group.key();
        let object = object.as_ptr().expose_provenance();
        let encoded = key.encode(object);
        if encoding::load_mark(object) == encoded {
            return heap_error::double_free(object);
        }
        encoding::set_mark(object, encoded);
        // SAFETY: `encoded` is an object of this class, which the caller no longer uses.
        if !unsafe { self.push(encoded) } {
            slow();
        }
    }

    /// Frees an object already marked as free to the lane; returns whether the lane took it.
    ///
    /// # Safety
    ///
    /// The caller guarantees that `object` is of this class and no longer used.
    #[inline(always)]
    pub unsafe fn free_marked(self, object: NonNull<u8>) -> bool {
        // SAFETY: the caller guarantees that `object` is of this class and no longer used.
        unsafe { self.push(self.group.key().encode(object.as_ptr().expose_provenance())) }
    }

    /// Pushes an encoded pointer to the lane; returns whether the lane had room.
    ///
    /// # Safety
    ///
    /// The caller guarantees that it encodes an object of this class that is no longer used.
    #[inline(always)]
    unsafe fn push(self, encoded: usize) -> bool {
        let gate = self.group.gate_ptr();
        // SAFETY: `gate` is the gate of a group in which this class has its cell, followed by the
        // direct table. The handle's maker guaranteed what the access `A` requires. `encoded`
        // is not 0, and the caller gives its object up.
        unsafe { Processor::push_object::<A>(gate, self.cell, encoded) == Outcome::Committed }
    }

    fn backend(self) -> Option<&'static Backend> {
        self.class.backend_if_used().or_else(|| self.init_backend())
    }

    /// Creates the backend at the first use; `None` if there is no memory.
    #[cold]
    fn init_backend(self) -> Option<&'static Backend> {
        let _ = startup::tier_or_panic();
        let _guard = self.group.lock.lock();
        if let Some(backend) = self.class.backend_if_used() {
            return Some(backend);
        }
        let key = self.group.init();
        let Class { shape, tag, .. } = *self.class;
        let backend = Backend::create(|owner| CacheInfo { owner, shape, tag, key })?;
        // Release: pairs with the Acquire in `backend_if_used`.
        self.class.backend.store(core::ptr::from_ref(backend) as usize, Release);
        Some(backend)
    }

    /// Returns the capacity of new sheaves: about one call in as many finds its lane empty.
    pub fn sheaf_capacity(self) -> usize {
        self.class.backend_if_used().map_or(1, Backend::capacity)
    }

    /// Returns the number of sheaves that lanes have traded so far.
    pub fn trades(self) -> u64 {
        self.class.backend_if_used().map_or(0, Backend::trades)
    }

    /// Returns the number of slabs.
    pub fn slabs(self) -> usize {
        self.class.backend_if_used().map_or(0, Backend::slabs)
    }

    /// Returns the number of objects in barns.
    pub fn objects_in_barns(self) -> usize {
        self.class.backend_if_used().map_or(0, Backend::objects_in_barns)
    }

    /// Returns the number of objects in lanes; an estimate while threads use them.
    pub fn objects_in_lanes(self) -> usize {
        let item = self.class.backend_if_used().and_then(|_| self.group.gate.load().item());
        item.map_or(0, |item| CacheCell::all(item, self.cell).map(CacheCell::objects).sum())
    }

    /// Returns how many objects were returned to slabs of other lanes' shards, or other nodes.
    pub fn remote_frees(self) -> u64 {
        self.class.backend_if_used().map_or(0, Backend::remote_frees)
    }

    /// Returns the bytes in barns that no lane has needed in this window so far.
    pub fn unused_bytes(self, window: Window) -> usize {
        let objects = |backend: &'static Backend| backend.unused_objects(window);
        self.class.backend_if_used().map_or(0, objects) * self.class.shape.size
    }

    /// Flushes a sheaf of unused objects to the slabs; returns how many these were.
    ///
    /// That is 0 if there is none, or if other threads have the locks of barns.
    pub fn flush_unused(self, window: Window) -> usize {
        self.class.backend_if_used().map_or(0, |backend| backend.flush_unused(window))
    }

    /// Begins a window in which unused objects are counted. A class has one of each kind.
    pub fn begin_window(self, window: Window) {
        if let Some(backend) = self.class.backend_if_used() {
            backend.begin_window(window);
        }
    }

    /// Frees an object into its slab, past lane and barn.
    ///
    /// # Safety
    ///
    /// The caller guarantees that `object` is of this class and no longer used.
    pub unsafe fn free_to_slab(self, object: NonNull<u8>) {
        if let Some(backend) = self.class.backend_if_used() {
            backend.free_object(backend.info.key.encode(object.as_ptr().expose_provenance()));
            purge::purge_if_due();
        }
    }

    /// Reports a heap error and aborts, unless an object of this class begins at `object`.
    pub fn check(self, object: NonNull<u8>) {
        if let Some(backend) = self.class.backend_if_used() {
            node_slabs::find_object(object.as_ptr().addr(), backend.info);
        }
    }

    /// Returns whether an object of this class begins at an address.
    pub fn is_object(self, address: usize) -> bool {
        let Some(backend) = self.class.backend_if_used() else { return false };
        let slab = Slab::containing(address).filter(|slab| slab.owner() == backend.info.owner);
        slab.is_some_and(|slab| slab.object_at(address).is_some())
    }
}

/// Restores the word that [`hand_out`](Handle::hand_out) has found, then reports the error.
#[cold]
#[inline(never)]
fn write_after_free(object: usize, encoded: usize) -> Option<NonNull<u8>> {
    encoding::add_to_mark(object, encoded);
    heap_error::write_after_free(object)
}
